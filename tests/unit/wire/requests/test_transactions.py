"""The end of a transaction and the question how it has ended."""

from __future__ import annotations

from msgspec.structs import replace

from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction, decision_of

END = EndTransaction("PG", "T", 3, 1234, 8, "ID", "TID", broker_name="broker-a")


def test_an_end_is_written_with_javas_names() -> None:
    assert END.to_fields() == {
        "topic": "T",
        "producerGroup": "PG",
        "tranStateTableOffset": "3",
        "commitLogOffset": "1234",
        "commitOrRollback": "8",
        "fromTransactionCheck": "false",
        "msgId": "ID",
        "transactionId": "TID",
        "bname": "broker-a",
    }
    assert EndTransaction.from_fields(END.to_fields()) == END


def test_an_old_producer_leaves_out_what_it_does_not_know() -> None:
    fields = END.to_fields()
    for name in ("topic", "transactionId", "bname", "fromTransactionCheck"):
        del fields[name]
    assert EndTransaction.from_fields(fields) == replace(END, topic="", transaction_id=None, broker_name=None)


def test_a_commit_is_8_and_a_rollback_12() -> None:
    assert (decision_of(True), decision_of(False)) == (8, 12)


def test_the_answer_to_a_question_has_the_offsets_of_the_question() -> None:
    question = CheckTransaction(
        half_offset=9,
        physical_offset=9999,
        message_id="ID",
        transaction_id="TID",
        offset_message_id="OID",
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        broker_name="broker-a",
    )
    assert CheckTransaction.from_fields(question.to_fields()) == question
    assert question.end("PG", 12, "ID").to_fields() == {
        "topic": "RMQ_SYS_TRANS_HALF_TOPIC",
        "producerGroup": "PG",
        "tranStateTableOffset": "9",
        "commitLogOffset": "9999",
        "commitOrRollback": "12",
        "fromTransactionCheck": "true",
        "msgId": "ID",
        "transactionId": "TID",
        "bname": "broker-a",
    }


def test_a_4_9_broker_asks_without_topic_and_broker_name() -> None:
    question = CheckTransaction.from_fields({"tranStateTableOffset": "9", "commitLogOffset": "99", "msgId": "ID"})
    assert question == CheckTransaction(9, 99, "ID")
    assert "bname" not in question.end("PG", 8, "ID").to_fields()

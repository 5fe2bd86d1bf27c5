from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from pyspark_rocketmq.columns import USUAL
from pyspark_rocketmq.option_table import OPTIONS
from pyspark_rocketmq.options import EARLIEST, LATEST, Edge, columns_of, read_options, write_options
from pyspark_rocketmq.problems import OptionError
from pyspark_rocketmq.source import RocketMQSource
from rocketapp import MessageQueue
from tests.cases import cases

BASE = {"nameServer": "n:9876", "subscribe": "orders"}
Q0 = MessageQueue("orders", "a", 0)


def batch(**given: str):  # type: ignore[no-untyped-def]
    return read_options({**BASE, **{name.replace("__", "."): value for name, value in given.items()}}, streaming=False)


def stream(**given: str):  # type: ignore[no-untyped-def]
    return read_options({**BASE, **{name.replace("__", "."): value for name, value in given.items()}}, streaming=True)


@pytest.mark.parametrize(
    ("given", "nearest"),
    [("subcribe", "subscribe"), ("startingOffset", "startingOffsets"), ("topics", "topic"), ("tls.ca", "tls.caFile")],
)
def test_an_unknown_option_is_refused_with_the_nearest_name(given: str, nearest: str) -> None:
    with pytest.raises(OptionError, match=f"unknown option '{given}': the nearest known one is '{nearest}'"):
        read_options({**BASE, given: "x"}, streaming=False)
    with pytest.raises(OptionError, match="unknown option"):
        write_options({"nameServer": "n:1", given: "x"})


def test_an_unknown_option_is_refused_when_the_read_is_loaded() -> None:
    assert RocketMQSource({**BASE, "queryName": "q"}).schema().startswith("topic")
    with pytest.raises(OptionError, match="unknown option 'subcribe'"):
        RocketMQSource({"nameServer": "n:1", "subcribe": "t"}).schema()


def test_a_schema_of_the_user_is_refused_before_anything_is_read() -> None:
    source = RocketMQSource({**BASE, "columns": "body"})
    assert source.reader(StructType([StructField("body", BinaryType())]))
    for read in (source.reader, source.streamReader):
        with pytest.raises(OptionError, match="leave out schema"):
            read(StructType([StructField("id", BinaryType())]))


def test_names_are_read_without_case() -> None:
    assert (
        read_options({"NAMESERVER": "n:1", "subscribe": "t", "PULLDEPTH": "2"}, streaming=False).pulls.pull_depth == 2
    )


@cases(
    "name, value, problem",
    [
        ("pullDepth", "0", "option pullDepth='0': give a whole number from 1 to 256"),
        ("pullDepth", "many", "whole number"),
        ("failOnDataLoss", "perhaps", "true or false"),
        ("nameServer", "n", "host:port"),
        ("nameServer", "n:99999", "host:port"),
        ("nameServer", "n:0", "host:port"),
        ("nameServer", "n:\N{SUPERSCRIPT TWO}", "host:port"),
        ("nameServer", "http://n:9876", "host:port"),
        ("startingOffsetsByTimestamp", "null", "JSON"),
        ("assign", "[" * 100_000, "JSON"),
        ("subscribe", " , ", "names with commas"),
        ("assign", "{", "JSON"),
        ("maxTriggerDelay", "15", "duration"),
        ("fromReplica", "always", "advice or never"),
        ("startingOffsets", "middle", "earliest, latest or JSON"),
        ("startingOffsets", '{"orders": {"a": {"0": -3}}}', "-2 is earliest"),
        ("startingOffsets", '{"orders": 5}', "JSON"),
        ("endingOffsets", "earliest", "nothing lies before"),
        ("startingOffsetsByTimestampStrategy", "first", "error or latest"),
        ("subscribePattern", "(", "subscribePattern"),
        ("columns", "body,offset", "'offset' is not one of topic, broker"),
        ("columns", "body,body", "twice"),
        ("columns", "body,bad_record", "needs badRecords=null"),
        ("tags", "||", "names no tag"),
    ],
)
def test_a_malformed_value_is_refused_with_its_option(name: str, value: str, problem: str) -> None:
    streaming = name == "maxTriggerDelay"
    given = {name: value} if name in ("assign", "subscribePattern") else {"subscribe": "orders", name: value}
    with pytest.raises(OptionError) as caught:
        read_options({"nameServer": "n:1", **given}, streaming=streaming)
    assert name in str(caught.value)
    assert problem in str(caught.value)


@cases(
    "given, problem",
    [
        ({"subscribe": "t"}, "nameServer is missing"),
        ({"nameServer": "n:1"}, "one of subscribe, subscribePattern and assign; given: none"),
        ({**BASE, "subscribePattern": "o.*"}, "given: subscribe, subscribePattern"),
        ({**BASE, "accessKey": "a"}, "accessKey does nothing without secretKey"),
        ({**BASE, "secretKey": "s"}, "secretKey does nothing without accessKey"),
        ({**BASE, "startingOffsets": "latest", "startingTimestamp": "5"}, "one of startingOffsets, startingTimestamp"),
        ({**BASE, "tags": "a", "sql": "b = 1"}, "one of tags and sql"),
        ({**BASE, "tls.caFile": "ca.pem"}, "tls.caFile does nothing without tls.enabled"),
        ({**BASE, "tls.verify": "false"}, "tls.verify does nothing without tls.enabled"),
        ({**BASE, "tls.enabled": "true", "tls.keyFile": "k"}, "tls.keyFile does nothing without tls.certFile"),
        ({**BASE, "securityToken": "T"}, "securityToken does nothing without accessKey"),
        ({**BASE, "consumerGroup": "g", "groupIdPrefix": "p"}, "one of consumerGroup and groupIdPrefix"),
        (
            {**BASE, "startingOffsetsByTimestampStrategy": "latest"},
            "does nothing without startingTimestamp or startingOffsetsByTimestamp",
        ),
        ({**BASE, "maxOffsetsPerTrigger": "5"}, "counts for a streaming read, this is a batch read"),
        ({**BASE, "topic": "t"}, "counts for a write"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        read_options(given, streaming=False)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets counts for a batch read"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger=9 is more"),
        ({"commitOffsets": "true"}, "commitOffsets does nothing without consumerGroup"),
        ({"maxTriggerDelay": "1m"}, "maxTriggerDelay does nothing without minOffsetsPerTrigger"),
    ],
)
def test_options_that_do_not_fit_a_stream_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(OptionError, match=problem):
        stream(**given)


SECRETS = {"accessKey": "AK", "secretKey": "S3CRET", "securityToken": "T0KEN"}
TLS = {"tls.enabled": "true", "tls.certFile": "cert.pem", "tls.keyPassword": "PASSW0RD"}


@pytest.mark.parametrize("streaming", [True, False])
def test_secrets_are_in_no_repr(streaming: bool) -> None:
    options = read_options({**BASE, **SECRETS, **TLS}, streaming=streaming)
    writing = write_options({"nameServer": "n:1", **SECRETS, **TLS})
    shown = repr(options) + repr(writing) + str(options.reach)
    assert "AK" in shown
    assert not [secret for secret in ("S3CRET", "T0KEN", "PASSW0RD") if secret in shown]
    assert pickle.loads(pickle.dumps(options)) == options


def test_a_secret_is_in_no_error() -> None:
    with pytest.raises(OptionError) as caught:
        read_options({**BASE, "secretKey": "S3CRET"}, streaming=False)
    assert "S3CRET" not in str(caught.value)


def test_defaults_of_a_batch_read() -> None:
    found = batch()
    assert (found.start, found.end) == (Edge(default=EARLIEST), Edge(default=LATEST))
    assert (found.pulls.pull_batch_size, found.pulls.pull_depth, found.reach.timeout) == (256, 16, 20.0)
    assert (found.reach.retries, found.reach.retry_interval) == (3, 1.0)
    assert (found.columns, found.min_partitions, found.max_records_per_partition) == (USUAL, None, None)
    assert found.pulls.fail_on_data_loss
    assert not found.pulls.is_filtered


def test_a_stream_begins_at_the_end_unless_told_otherwise() -> None:
    assert stream().start == Edge(default=LATEST)
    assert stream(startingOffsets="Earliest").start == Edge(default=EARLIEST)
    found = stream()
    assert (found.max_offsets_per_trigger, found.max_bytes_per_trigger, found.min_offsets_per_trigger) == (None,) * 3
    assert found.max_trigger_delay == 900.0


def test_offsets_may_name_some_queues_and_the_form_that_spark_keeps_is_read_too() -> None:
    text = '{"orders": {"a": {"0": 5}}}'
    assert batch(startingOffsets=text).start == Edge(default=EARLIEST, offsets={Q0: 5})
    assert stream(startingOffsets='{"t": ' + text + ', "v": 1}').start == Edge(default=LATEST, offsets={Q0: 5})
    assert batch(endingOffsets=text).end == Edge(default=LATEST, offsets={Q0: 5})


def test_times_of_the_start_fail_on_a_miss_unless_told_otherwise_and_those_of_the_end_never() -> None:
    assert batch(startingTimestamp="5").start == Edge(default=EARLIEST, time=5, fail_on_miss=True)
    assert batch(endingTimestamp="5").end == Edge(default=LATEST, time=5)
    times = '{"orders": {"a": {"0": 5}}}'
    assert batch(startingTimestamp="0", startingOffsetsByTimestampStrategy="latest").start.time == 0
    loose = batch(startingOffsetsByTimestamp=times, startingOffsetsByTimestampStrategy="latest")
    assert loose.start == Edge(default=EARLIEST, times={Q0: 5})
    assert batch(endingOffsetsByTimestamp=times).end == Edge(default=LATEST, times={Q0: 5})


def test_queues_may_be_assigned() -> None:
    found = read_options({"nameServer": "n:1", "assign": '{"orders": {"a": [1, 0]}}'}, streaming=False)
    assert found.topics.assigned == (Q0, MessageQueue("orders", "a", 1))
    for wrong in ('{"orders": [0]}', '{"orders": {"a": ["0"]}}', '{"orders": {"a": 5}}'):
        with pytest.raises(OptionError, match="assign: give"):
            read_options({"nameServer": "n:1", "assign": wrong}, streaming=False)


@cases(
    "given, expected",
    [
        ({}, USUAL),
        ({"includeProperties": "true"}, (*USUAL, "properties")),
        ({"columns": "Body, queue_offset"}, ("body", "queue_offset")),
        ({"columns": "body", "includeProperties": "true"}, ("body", "properties")),
        ({"columns": "properties"}, ("properties",)),
        ({"badRecords": "null"}, (*USUAL, "bad_record")),
        ({"columns": "bad_record,body", "badRecords": "null"}, ("bad_record", "body")),
    ],
)
def test_columns(given: dict[str, str], expected: tuple[str, ...]) -> None:
    assert columns_of(given) == batch(**given).columns == expected


def test_filters_go_to_the_broker_as_they_were_written() -> None:
    assert batch(tags=" a || b ").pulls.tags == {"a", "b"}
    assert batch(tags="a||b").pulls.expression == "a||b"
    assert (batch(sql="x > 1").pulls.expression, batch(sql="x > 1").pulls.expression_type) == ("x > 1", "SQL92")
    assert batch(sql="x > 1").pulls.is_filtered


def test_every_option_is_documented() -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    assert [option.name for option in OPTIONS if f"`{option.name}`" not in page] == []


def test_every_option_has_one_name() -> None:
    names = [option.name.lower() for option in OPTIONS]
    assert len(names) == len(set(names))

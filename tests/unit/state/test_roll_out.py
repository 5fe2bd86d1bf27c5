"""What members of a group subscribe, compared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.state.roll_out import (
    Known,
    MemberKind,
    Others,
    differences,
    not_yet_pulled,
    passed_over,
    shared,
    shown,
    summary,
    united,
)


def wants(**topics: str) -> dict[str, SubscriptionData]:
    return {topic: SubscriptionData(topic, tags, parse_tags(tags)) for topic, tags in topics.items()}


def kind(*names: str, **topics: str) -> MemberKind:
    return MemberKind({name: Known(0.0) for name in names}, wants(**topics))


@pytest.mark.parametrize(
    ("mine", "theirs", "told"),
    [
        ({"t": "a||b"}, {"t": "b || a"}, []),
        ({"t": "*"}, {"t": "*"}, []),
        ({"t": "b||c"}, {"t": "a||b"}, ["member m subscribes t with a || b, this app with b || c"]),
        ({"t": "*", "u": "*"}, {"t": "*"}, ["member m does not subscribe u, this app does, with *"]),
        ({"t": "*"}, {"t": "*", "u": "x"}, ["member m subscribes u with x, this app does not subscribe it"]),
    ],
    ids=["same tags", "same star", "other tags", "missing there", "missing here"],
)
def test_a_difference_names_the_member_the_topic_and_both_sides(
    mine: dict[str, str], theirs: dict[str, str], told: list[str]
) -> None:
    assert [str(one) for one in differences(wants(**mine), wants(**theirs), ["m"])] == told


def test_what_members_say_alike_is_kept_once() -> None:
    mine, other = wants(t="a || b", u="*"), wants(t="a")
    assert shared(wants(t="b||a", u="*"), [other, mine]) is mine
    for differing in (wants(t="a || b"), wants(t="a || b", u="x"), wants(t="a || b", v="*")):
        assert shared(differing, [other, mine]) is differing


def test_members_that_differ_alike_are_told_together() -> None:
    mine = wants(t="b", u="*")
    found = [one for name in "xyz" for one in differences(mine, wants(t="a"), [name])]
    assert summary(found, 2) == (
        "member x and 2 more subscribe t with a, this app with b; "
        "member x and 2 more do not subscribe u, this app does, with *"
    )
    assert summary(found, 1).endswith("this app with b and 1 more")


def test_another_kind_of_expression_differs_and_is_not_united() -> None:
    sql = {"t": SubscriptionData("t", "amount > 5", expression_type="SQL92")}
    assert [str(one) for one in differences(wants(t="a"), sql, ["m"])] == [
        "member m subscribes t with SQL92 amount > 5, this app with a"
    ]
    assert shown(united([wants(t="a"), sql])["t"]) == "a"
    assert not Others(wants(t="a"), [MemberKind({"m": Known(0.0)}, sql)]).takers("t", b"b")


def test_messages_that_another_member_wants_have_takers() -> None:
    old, new, every = kind("old", t="a||b"), kind("new", t="b||c"), kind("all", u="*")
    others = Others(wants(t="b||c"), [old, new, every])
    assert others.takers("t", b"a") == ["old"]
    assert others.takers("t", b"x") == others.takers("t", None) == others.takers("v", b"a") == []
    assert others.takers("u", b"x") == others.takers("u", None) == ["all"]


def test_members_that_subscribe_alike_come_and_go_as_takers() -> None:
    old = kind("old-2", "old-1", t="a||b")
    others = Others(wants(t="b"), [old])
    assert others.takers("t", b"a") == ["old-1", "old-2"]
    del old.members["old-1"]
    assert others.takers("t", b"a") == ["old-2"]


@pytest.mark.parametrize(
    ("pulls", "later", "never"),
    [
        ({"t": "a || b || c"}, [], []),
        ({"t": "a || b"}, ["t"], []),
        ({}, [], ["t"]),
        (None, [], ["t"]),
    ],
    ids=["it has", "it will", "not this topic", "no roll-out"],
)
def test_what_a_member_pulls_shows_what_it_passes_over(
    pulls: dict[str, str] | None, later: list[str], never: list[str]
) -> None:
    union = united([wants(t="b||c", u="*"), wants(t="a||b")])
    assert not_yet_pulled(union, pulls) == later
    assert passed_over(union, wants(t="a||b"), pulls) == never


_TAGS = st.lists(st.sampled_from("abcd"), max_size=3).map(lambda tags: " || ".join(tags) or "*")
_WANTS = st.dictionaries(st.sampled_from("tuv"), _TAGS, max_size=3)


@given(st.lists(_WANTS, min_size=1, max_size=4), st.sampled_from("tuv"), st.sampled_from([b"a", b"d", b"x", None]))
def test_the_union_takes_exactly_what_any_member_takes_and_others_know_who(
    members: list[dict[str, str]], topic: str, tag: bytes | None
) -> None:
    each = [wants(**one) for one in members]

    def takes(data: SubscriptionData | None) -> bool:
        return data is not None and (not data.tags or (tag is not None and tag.decode() in data.tags))

    union = united(each)
    assert takes(union.get(topic)) == any(takes(one.get(topic)) for one in each)
    mine, others = each[0], Others(each[0], [MemberKind({str(at): Known(0.0)}, one) for at, one in enumerate(each)])
    if not takes(mine.get(topic)):
        assert others.takers(topic, tag) == [str(at) for at, one in enumerate(each) if takes(one.get(topic))]
        assert others.are_wanting(topic, tag) == any(takes(one.get(topic)) for one in each)


@given(
    st.lists(_WANTS, min_size=1, max_size=4).flatmap(
        lambda members: st.tuples(st.just(members), st.permutations(members))
    )
)
def test_every_member_finds_the_same_union(orders: tuple[list[dict[str, str]], list[dict[str, str]]]) -> None:
    one, other = (united([wants(**member) for member in members]) for members in orders)
    assert {topic: shown(data) for topic, data in one.items()} == {topic: shown(data) for topic, data in other.items()}

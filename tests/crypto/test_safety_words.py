"""Safety words: properties of the dictionary and of the derivation."""

import re
from collections import Counter
from pathlib import Path

import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.crypto.encoding import canonical_json
from zerochat.crypto.safety_words import (
    PREFIX_CHARS,
    WORD_BITS,
    WORDS,
    dictionary,
    group_words,
    pair_words,
    safety_words,
    same_words,
    split_for_reading,
)
from zerochat.errors import Malformed

GROUP = "g" * 43
ALICE, BOB, CAROL = (f"did:key:z6Mk{letter * 44}" for letter in "abc")
KEYS = st.lists(st.one_of(st.text(max_size=8), st.binary(max_size=8)), max_size=5)
SLOW = settings(max_examples=15, deadline=None)
"""Each new list of keys costs a hash that is slow on purpose."""

SOUND_ALIKE = """
ail air aisle aloud altar alter arc ate aural bail bald ball band bare base bass beach bean bear beat bee beech beer
bell berry bite blew blue board boar boarder bold bolder border bore bough boulder bow bowl boy brake bread break
bridal bridle bury bus buy byte canvas capital carat carrot cash cast cedar ceiling cell cellar cent cereal
chance cheap check chews chilly choir choose choral chord chute cite clause claws coarse colonel coral cord core council
counsel course creak creek crews cruise cue currant current cymbal dam days dear deer dense dents desert dew die draft
dual duel dye earn eight ewe eye faint fair fare fate feat feet find finish fir flair flare flea flee flew flour flow
flower for foreword forth forward four fourth foul fowl freeze fur gait gamble gambol gate gilt gorilla grate great
groan grown guest guilt hail hair hale hall hanger hare hart haul hay heal hear heart heel hear herd here heroin heroine
higher him hire hoarse hole holy horse hour idle idol isle jam kernel key knew knight knot know lane lava leak led leek
lessen lesson liar lie links loan lynx made mail main male manner manor mantel mantle mare marry maze meat medal meddle
meet merry metal mettle mind mine miner minor mist moose mousse muscle mussel mustard naval navel new night none nose
nun oar ore our pail pain pair palate palette panda past patience patients pause paws peace peak pear pearl pedal peel
peer piece pier pigeon pistol place plain plane plate please plum pole poll pore pour praise pray prey pride prince
principal principle prints prize profit prophet quarts quartz rain raise rap raw read red reed reign rein right ring
road roam role roll room root rose rough route row rye sail sale sauce saw scene scent sea seam see seen seller sense
sent serial session sew shake shear shoe shoot shore side sight sign site slay sleigh slow soar sole son sore soul
source sow stair stake stalk stare stationary steak steal steel step stile stork story straight style suite sum sun
sundae sure surf sweet symbol tail tale talk taught tea team tear tense tents tern there throne through throw thyme tide
tie tied timber time tire toad toe ton tow tuna turn vain vale vane veil vein vendor wail waist wait waste watt wave way
weak wear weather week weigh weight weld whale wheel where which while whine whole wine witch wood word world worn wrap
wring write yacht yoke yolk
"""


def neighbours(word: str) -> set[str]:
    """Patterns of which two words share one exactly if a single edit leads from one to the other."""
    places = range(len(word) + 1)
    changed = {f"{word[:place]}?{word[place + 1 :]}" for place in places[:-1]}
    longer = {f"{word[:place]}?{word[place:]}" for place in places}
    return changed | longer


# --- the dictionary -------------------------------------------------------------------------------------------------


def test_the_dictionary_has_a_word_for_every_eleven_bits():
    assert len(dictionary()) == len(set(dictionary())) == 2**WORD_BITS
    assert list(dictionary()) == sorted(dictionary())


def test_the_file_has_one_word_a_line():
    file = Path(__file__).parents[2] / "zerochat" / "crypto" / "words.txt"
    assert file.read_text(encoding="ascii") == "\n".join(dictionary()) + "\n"


def test_words_are_short_and_plain():
    assert [word for word in dictionary() if not re.fullmatch("[a-z]{3,7}", word)] == []


def test_four_letters_name_a_word():
    heads = Counter(word[:PREFIX_CHARS] for word in dictionary())
    assert [head for head, count in heads.items() if count > 1] == []


def test_no_word_begins_another():
    words = set(dictionary())
    assert [word for word in words for end in range(1, len(word)) if word[:end] in words] == []


def test_one_slip_makes_no_other_word():
    seen: dict[str, str] = {}
    near = [(seen.setdefault(each, word), word) for word in dictionary() for each in neighbours(word)]
    assert [(one, other) for one, other in near if one != other] == []


@pytest.mark.parametrize(("one", "other"), [("lemon", "melon"), ("cat", "cats"), ("cat", "at"), ("cat", "cut")])
def test_the_rule_about_slips_sees(one, other):
    assert bool(neighbours(one) & neighbours(other)) == (one != "lemon")


def test_no_word_sounds_like_another_of_the_language():
    assert set(dictionary()) & set(SOUND_ALIKE.split()) == set()


# --- the words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "first", "second"),
    [
        (pair_words(GROUP, ALICE, BOB), "guava clerk machine bounce", "give coaster routine steam"),
        (group_words(GROUP, [ALICE, BOB, CAROL]), "soda inform helmet zero", "coaster combine mimosa medley"),
        (safety_words("", []), "bright teeter kayak grab", "anyone oatmeal litmus crooked"),
    ],
    ids=["pair", "group", "nothing"],
)
def test_the_words_never_change(words, first, second):
    """Every version must derive the same words."""
    assert split_for_reading(words) == f"{first}\n{second}"


@pytest.mark.conformance
@pytest.mark.parametrize("keys", [[], ["a", b"\0\xff"], [ALICE, BOB, CAROL]], ids=len)
def test_another_argon2id_finds_the_same_words(keys):
    named = sorted(["text", key] if isinstance(key, str) else ["bytes", "AP8"] for key in keys)
    message = canonical_json(["zerochat/words/1", "context", named])
    try:
        other = Argon2id(salt=b"zerochat/words/1", length=16, iterations=2, lanes=1, memory_cost=16 * 1024)
    except UnsupportedAlgorithm:
        pytest.skip("this OpenSSL has no Argon2")
    bits = "".join(f"{byte:08b}" for byte in other.derive(message))
    expected = [dictionary()[int(bits[start : start + 11], 2)] for start in range(0, 88, 11)]
    assert list(safety_words("context", keys)) == expected


@SLOW
@given(KEYS, st.randoms(use_true_random=False))
def test_the_order_of_keys_does_not_matter(keys, random):
    shuffled = list(keys)
    random.shuffle(shuffled)
    words = safety_words("context", keys)
    assert safety_words("context", iter(shuffled)) == words
    assert len(words) == WORDS and set(words) <= set(dictionary())


@SLOW
@given(st.text(max_size=4), KEYS, st.text(max_size=4), KEYS)
def test_different_inputs_have_different_words(context, keys, other_context, other_keys):
    same = context == other_context and Counter(keys) == Counter(other_keys)
    assert (safety_words(context, keys) == safety_words(other_context, other_keys)) == same


@pytest.mark.parametrize(
    "keys",
    [[], ["ab"], ["a", "b", "b"], ["b", "c"], [b"a", "b"], ["YQ", "b"], ["ab", ""], ["a", "b", ""], ["A", "b"]],
    ids=repr,
)
def test_neighbouring_lists_have_other_words(keys):
    assert safety_words("context", keys) != safety_words("context", ["a", "b"])


def test_a_pair_has_its_own_words():
    words = pair_words(GROUP, ALICE, BOB)
    assert words == pair_words(GROUP, BOB, ALICE)
    assert words not in (pair_words(GROUP, ALICE, CAROL), pair_words("h" * 43, ALICE, BOB))
    assert words != group_words(GROUP, [ALICE, BOB])
    with pytest.raises(AssertionError):
        pair_words(GROUP, ALICE, ALICE)


def test_a_group_has_the_words_of_its_members():
    words = group_words(GROUP, [ALICE, BOB, CAROL])
    assert words == group_words(GROUP, (CAROL, BOB, ALICE, BOB))
    assert words not in (group_words(GROUP, [ALICE, BOB]), group_words("h" * 43, [ALICE, BOB, CAROL]))


def test_invalid_text_is_refused():
    with pytest.raises(Malformed):
        safety_words("context", ["\ud800"])


# --- reading and typing ---------------------------------------------------------------------------------------------

EIGHT = st.lists(st.sampled_from(dictionary()), min_size=WORDS, max_size=WORDS)


@given(EIGHT)
def test_two_lines_of_four(words):
    lines = split_for_reading(words).splitlines()
    assert [len(line.split()) for line in lines] == [4, 4] and " ".join(lines).split() == words


@given(EIGHT, st.data())
def test_typed_words_may_be_abbreviated(words, data):
    said = ""
    for word in words:
        end = data.draw(st.integers(min(PREFIX_CHARS, len(word)), len(word)))
        spelling = data.draw(st.sampled_from([str.lower, str.upper, str.title]))
        said += spelling(word[:end]) + data.draw(st.sampled_from([" ", ", ", "\n", " - ", "\t", ". ", ","]))
    assert same_words(said, words)
    assert same_words(split_for_reading(words), words)


@given(EIGHT, EIGHT, st.data())
def test_other_words_are_not_the_same(words, others, data):
    assert same_words(" ".join(others), words) == (others == words)
    place = data.draw(st.integers(0, WORDS - 1))
    shorter = [*words[:place], *words[place + 1 :]]
    assert not same_words(" ".join(shorter), words)
    assert not same_words(" ".join([*words, words[place]]), words)
    too_short = [*words[:place], words[place][: min(PREFIX_CHARS, len(words[place])) - 1], *words[place + 1 :]]
    assert not same_words(" ".join(too_short), words)
    assert not same_words(" ".join([*words[:place], words[place] + "s", *words[place + 1 :]]), words)


@given(st.text())
def test_any_typed_text_can_be_compared(said):
    assert not same_words(said, ("acorn",) * WORDS) or "acor" in said.casefold()

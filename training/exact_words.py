"""Exact examples about words and dates: spelling, sorting, letters, calendar, capitals."""

# ruff: noqa: E501  (tables of phrasings: one entry or one group a line)

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from training.example import ALWAYS_HELD, Example, Turn, casual

SORT_NUMBERS = (
    "Sort these numbers: {l}.", "Sort {l}.", "Put these numbers in order: {l}", "Order these numbers: {l}.",
    "Sort the numbers {l} from small to large.", "Arrange {l} in ascending order.",
    "Can you sort {l}?", "Sort this list: {l}", "Please sort these numbers from smallest to largest: {l}.",
    "Write these numbers in order: {l}.", "Sort {l} from lowest to highest.", "Give me {l} in order.",
)  # fmt: skip
SORT_DOWN = (
    "Sort {l} from large to small.", "Sort these numbers in descending order: {l}.",
    "Arrange {l} from largest to smallest.", "Order {l} from high to low.",
    "Put {l} in descending order.", "Sort these numbers from biggest to smallest: {l}",
)  # fmt: skip
SORT_WORDS = (
    "Sort these words: {l}.", "Sort these words alphabetically: {l}.", "Put these words in alphabetical order: {l}.",
    "Arrange {l} alphabetically.", "Can you sort the words {l}?", "Sort {l} by the alphabet.",
    "Alphabetical order please: {l}", "Order these words from A to Z: {l}.", "Write {l} in alphabetical order.",
)  # fmt: skip
SPELL = (
    "Spell {w}.", "Spell the word {w}.", "How do you spell {w}?", "Can you spell {w}?", "How is {w} spelled?",
    "Spell '{w}'.", "Spell \"{w}\" for me.", "Please spell {w}.", "What are the letters of {w}?",
    "Write the letters of {w}.", "Spell out {w}.", "How do I spell {w}?", "Tell me how to spell {w}.",
    "Spell the word \"{w}\" letter by letter.", "Give me the spelling of {w}.", "What is the spelling of {w}?",
)  # fmt: skip
BACK = (
    "Spell {w} backwards.", "Spell {w} in reverse.", "What is {w} spelled backwards?", "Reverse the word {w}.",
    "Write {w} backwards.", "Say the letters of {w} from the end.",
)  # fmt: skip
HOW_MANY = (
    "How many letters are in {w}?", "How many letters does {w} have?", "How many letters are in the word {w}?",
    "Count the letters in {w}.", "Count the letters of '{w}'.", "How long is the word {w}?",
    "What is the number of letters in {w}?", "Tell me how many letters {w} has.",
)  # fmt: skip
ONE_LETTER = (
    "How many times is the letter {x} in {w}?", "How often does {x} occur in {w}?", "How many {x}'s are in {w}?",
    "Count the letter {x} in the word {w}.", "How many times does {x} appear in {w}?",
)  # fmt: skip
PLACE = (
    ("What is the first letter of {w}?", 0), ("What letter does {w} start with?", 0),
    ("What is the last letter of {w}?", -1), ("What letter does {w} end with?", -1),
    ("What is the second letter of {w}?", 1), ("What is the third letter of {w}?", 2),
    ("Which letter does {w} begin with?", 0), ("Tell me the last letter of {w}.", -1),
)  # fmt: skip
HOW_MANY_WORDS = (
    "How many words are in \"{s}\"?", "Count the words: {s}", "How many words are in this sentence: {s}",
    "Count the words in \"{s}\".", "How many words does \"{s}\" have?",
)  # fmt: skip
ORDINALS = {0: "first", 1: "second", 2: "third", -1: "last"}


@dataclass(frozen=True, slots=True)
class Words:
    """Common words. `unseen` ones are of several tokens each and for the evaluation only.

    A word of one token that is never spelled in training could not be spelled by any model that
    reads tokens; a word of several can, from its parts.
    """

    all: tuple[str, ...]
    unseen: frozenset[str]

    def topic(self, *words: str) -> str:
        """Topic of an example about these words: held out if one of them is unseen."""
        is_unseen = not self.unseen.isdisjoint(words)
        return ALWAYS_HELD * is_unseen + "words"


def listed(rng: random.Random, items: Sequence[object]) -> str:
    """A list as people type it."""
    texts = [str(i) for i in items]
    style = rng.random()
    if style < 0.6:
        return ", ".join(texts)
    return ", ".join(texts[:-1]) + f" and {texts[-1]}" if style < 0.8 else " ".join(texts)


def sort_numbers(rng: random.Random) -> Example:
    """Three to eight numbers in order, sometimes reversed by a follow-up."""
    top = rng.choice((10, 50, 100, 100, 1000))
    some = [rng.randrange(top) for _ in range(rng.randrange(3, 9))]
    is_down = rng.random() < 0.3
    form = rng.choice(SORT_DOWN if is_down else SORT_NUMBERS)
    answer = ", ".join(map(str, sorted(some, reverse=is_down)))
    end = "largest" if is_down else "smallest"
    best = max(some) if is_down else min(some)
    think = f"There are {len(some)} numbers. The {end} is {best}, so it comes first."
    turns = [Turn(casual(rng, form.format(l=listed(rng, some))), answer, think)]
    if rng.random() < 0.15:
        more = rng.choice(
            ("Now the other way round.", "And in reverse?", "Now in reverse order.")
        )
        turns.append(Turn(more, ", ".join(map(str, sorted(some, reverse=not is_down)))))
    return Example("sort", form, f"sort:{some}", tuple(turns), answer)


def sort_words(rng: random.Random, words: Words) -> Example:
    """Three to six words in alphabetical order."""
    some = rng.sample(words.all, rng.randrange(3, 7))
    form = rng.choice(SORT_WORDS)
    answer = ", ".join(sorted(some))
    think = f"By first letters: {', '.join(sorted(w[0] for w in some))}."
    turn = Turn(casual(rng, form.format(l=listed(rng, some))), answer, think)
    return Example("sort", form, words.topic(*some), (turn,), answer)


def spelling(rng: random.Random, words: Words) -> Example:
    """Letters of a word, forwards or backwards, with follow-ups about it."""
    w = rng.choice(words.all)
    letters = "-".join(w)
    if rng.random() < 0.25:
        form = rng.choice(BACK)
        answer = f"{letters} backwards is {'-'.join(reversed(w))}."
        turn = Turn(casual(rng, form.format(w=w)), answer, f"The letters are {letters}.")
        return Example("spell back", form, words.topic(w), (turn,), "-".join(reversed(w)))
    form = rng.choice(SPELL)
    turns = [
        Turn(casual(rng, form.format(w=w)), letters, f"The word is {w}. I go letter by letter.")
    ]
    if rng.random() < 0.2:
        more = rng.choice(("How many letters is that?", "How many letters are there?"))
        turns.append(Turn(more, f"{letters}: {len(w)} letters."))
    return Example("spell", form, words.topic(w), tuple(turns), letters)


def letters(rng: random.Random, words: Words) -> Example:
    """Counting and finding letters; the answer spells first, so that it can count."""
    w = rng.choice(words.all)
    spelled = "-".join(w)
    roll = rng.random()
    if roll < 0.5:
        form, answer = rng.choice(HOW_MANY), f"{spelled}: {len(w)} letters."
        want = str(len(w))
    elif roll < 0.75:
        x = rng.choice(w) if rng.random() < 0.8 else rng.choice("aeiourstln")
        n = w.count(x)
        form = rng.choice(ONE_LETTER).replace("{x}", x)
        answer, want = f"{spelled}: {x} occurs {n} time{'' if n == 1 else 's'}.", str(n)
    else:
        form, at = rng.choice(PLACE)
        answer = f"The {ORDINALS[at]} letter of {w} is {w[at]}."
        want = w[at]
    turn = Turn(casual(rng, form.format(w=w)), answer, f"The letters are {spelled}.")
    return Example("letters", form, words.topic(w), (turn,), want)


def word_count(rng: random.Random, words: Words) -> Example:
    """Words of a short sentence, numbered in the answer."""
    some = [rng.choice(words.all) for _ in range(rng.randrange(2, 9))]
    sentence = " ".join(some)
    form = rng.choice(HOW_MANY_WORDS)
    answer = (
        ", ".join(f"{i} {w}" for i, w in enumerate(some, 1)) + f". There are {len(some)} words."
    )
    turn = Turn(casual(rng, form.format(s=sentence)), answer)
    return Example("count", form, words.topic(*some), (turn,), f"{len(some)} words")


DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
DATE_FORMS: tuple[tuple[str, str], ...] = (
    ("What day comes after {d}?", "day+1"), ("Which day is after {d}?", "day+1"),
    ("Today is {d}. What day is tomorrow?", "day+1"), ("What day comes before {d}?", "day-1"),
    ("If today is {d}, what day was yesterday?", "day-1"), ("What day is {n} days after {d}?", "day+n"),
    ("Today is {d}. What day will it be in {n} days?", "day+n"), ("What month comes after {m}?", "month+1"),
    ("Which month is before {m}?", "month-1"), ("How many days does {m} have?", "length"),
    ("How many days are in {m}?", "length"), ("Which number is the month {m}?", "number"),
    ("What is the {k}th month of the year?", "month"), ("What date is {n} days after {m} {t}?", "date"),
    ("It is {m} {t}. What date will it be in {n} days?", "date"), ("Is {y} a leap year?", "leap"),
    ("Was {y} a leap year?", "leap"), ("Which year comes after {y}?", "year"),
    ("How many days are from {m} {t} to {m} {u}?", "between"),
    ("How many days does the year {y} have?", "year length"),
)  # fmt: skip


def calendar(rng: random.Random) -> Example:
    """Days, months and dates (a year of 365 days unless the year is named)."""
    form, what = rng.choice(DATE_FORMS)
    i, j, n = rng.randrange(7), rng.randrange(12), rng.randrange(2, 15)
    t = rng.randrange(1, LENGTHS[j] + 1)
    u = rng.randrange(t, LENGTHS[j] + 1)
    y, k = rng.randrange(1800, 2100), rng.randrange(4, 13)
    is_leap = y % 4 == 0 and (y % 100 != 0 or y % 400 == 0)
    later = t + n
    jj, tt = (j, later) if later <= LENGTHS[j] else ((j + 1) % 12, later - LENGTHS[j])
    days = "days" if u - t != 1 else "day"
    answers = {
        "day+1": f"The day after {DAYS[i]} is {DAYS[(i + 1) % 7]}.",
        "day-1": f"The day before {DAYS[i]} is {DAYS[i - 1]}.",
        "day+n": f"{n} days after {DAYS[i]} is {DAYS[(i + n) % 7]}.",
        "month+1": f"{MONTHS[(j + 1) % 12]} comes after {MONTHS[j]}.",
        "month-1": f"{MONTHS[j - 1]} comes before {MONTHS[j]}.",
        "length": f"{MONTHS[j]} has {LENGTHS[j]} days{', and 29 in a leap year' if j == 1 else ''}.",
        "number": f"{MONTHS[j]} is month number {j + 1}.",
        "month": f"The {k}th month is {MONTHS[k - 1]}.",
        "date": f"{n} days after {MONTHS[j]} {t} is {MONTHS[jj]} {tt}.",
        "leap": f"{'Yes' if is_leap else 'No'}, {y} is {'' if is_leap else 'not '}a leap year.",
        "year": f"The year {y + 1} comes after {y}.",
        "between": f"From {MONTHS[j]} {t} to {MONTHS[j]} {u} it is {u - t} {days}.",
        "year length": f"The year {y} has {366 if is_leap else 365} days.",
    }
    text = form.format(d=DAYS[i], m=MONTHS[j], n=n, t=t, u=u, y=y, k=k)
    topic = {"d": i, "m": j, "y": y, "k": k}
    used = [v for key, v in topic.items() if "{" + key + "}" in form]
    turn = Turn(casual(rng, text), answers[what])
    return Example("date", form, f"{what}:{used},{n},{t}", (turn,))


CAPITALS = dict(
    part.split("=")
    for part in [
        "France=Paris",
        "Germany=Berlin",
        "Italy=Rome",
        "Spain=Madrid",
        "Portugal=Lisbon",
        "Austria=Vienna",
        "Belgium=Brussels",
        "Poland=Warsaw",
        "Greece=Athens",
        "Sweden=Stockholm",
        "Norway=Oslo",
        "Denmark=Copenhagen",
        "Finland=Helsinki",
        "Ireland=Dublin",
        "Hungary=Budapest",
        "Romania=Bucharest",
        "Bulgaria=Sofia",
        "Croatia=Zagreb",
        "Serbia=Belgrade",
        "Slovakia=Bratislava",
        "Slovenia=Ljubljana",
        "the Czech Republic=Prague",
        "Ukraine=Kyiv",
        "Russia=Moscow",
        "Turkey=Ankara",
        "Iceland=Reykjavik",
        "Estonia=Tallinn",
        "Latvia=Riga",
        "Lithuania=Vilnius",
        "Albania=Tirana",
        "the Netherlands=Amsterdam",
        "Luxembourg=Luxembourg",
        "Malta=Valletta",
        "Cyprus=Nicosia",
        "Switzerland=Bern",
        "the United Kingdom=London",
        "England=London",
        "Scotland=Edinburgh",
        "Wales=Cardiff",
        "Japan=Tokyo",
        "China=Beijing",
        "India=New Delhi",
        "Pakistan=Islamabad",
        "Nepal=Kathmandu",
        "Bangladesh=Dhaka",
        "Thailand=Bangkok",
        "Vietnam=Hanoi",
        "Indonesia=Jakarta",
        "Malaysia=Kuala Lumpur",
        "the Philippines=Manila",
        "South Korea=Seoul",
        "North Korea=Pyongyang",
        "Mongolia=Ulaanbaatar",
        "Iran=Tehran",
        "Iraq=Baghdad",
        "Syria=Damascus",
        "Lebanon=Beirut",
        "Jordan=Amman",
        "Saudi Arabia=Riyadh",
        "Qatar=Doha",
        "Oman=Muscat",
        "Yemen=Sanaa",
        "Afghanistan=Kabul",
        "Uzbekistan=Tashkent",
        "Kazakhstan=Astana",
        "Georgia=Tbilisi",
        "Armenia=Yerevan",
        "Azerbaijan=Baku",
        "Egypt=Cairo",
        "Morocco=Rabat",
        "Tunisia=Tunis",
        "Algeria=Algiers",
        "Libya=Tripoli",
        "Sudan=Khartoum",
        "Ethiopia=Addis Ababa",
        "Kenya=Nairobi",
        "Uganda=Kampala",
        "Rwanda=Kigali",
        "Tanzania=Dodoma",
        "Ghana=Accra",
        "Nigeria=Abuja",
        "Senegal=Dakar",
        "Mali=Bamako",
        "Angola=Luanda",
        "Zambia=Lusaka",
        "Zimbabwe=Harare",
        "Mozambique=Maputo",
        "Namibia=Windhoek",
        "Botswana=Gaborone",
        "Madagascar=Antananarivo",
        "Somalia=Mogadishu",
        "Cameroon=Yaounde",
        "Niger=Niamey",
        "Chad=N'Djamena",
        "Canada=Ottawa",
        "the United States=Washington, D.C.",
        "Mexico=Mexico City",
        "Cuba=Havana",
        "Jamaica=Kingston",
        "Haiti=Port-au-Prince",
        "Guatemala=Guatemala City",
        "Honduras=Tegucigalpa",
        "Nicaragua=Managua",
        "Costa Rica=San Jose",
        "Panama=Panama City",
        "Colombia=Bogota",
        "Venezuela=Caracas",
        "Ecuador=Quito",
        "Peru=Lima",
        "Brazil=Brasilia",
        "Chile=Santiago",
        "Argentina=Buenos Aires",
        "Uruguay=Montevideo",
        "Paraguay=Asuncion",
        "Australia=Canberra",
        "New Zealand=Wellington",
        "Fiji=Suva",
        "Cambodia=Phnom Penh",
        "Laos=Vientiane",
        "Singapore=Singapore",
        "Kuwait=Kuwait City",
        "Bahrain=Manama",
    ]
)
CAPITAL_FORMS = (
    "What is the capital of {c}?", "What's the capital of {c}?", "Which city is the capital of {c}?",
    "Tell me the capital of {c}.", "Name the capital of {c}.", "Do you know the capital of {c}?",
    "What city is the capital of {c}?", "The capital of {c}?", "I want to know the capital of {c}.",
    "Can you tell me the capital of {c}?", "What is the capital city of {c}?", "Capital of {c}",
    "What is {c}'s capital?", "Which is the capital of {c}?", "Give me the capital of {c}.",
    "Please tell me what the capital of {c} is.", "What do you call the capital of {c}?",
)  # fmt: skip
HELD_CAPITAL_FORMS = (
    "What is the name of {c}'s capital?",
    "Which capital does {c} have?",
    "Say the capital of {c}.",
)
COUNTRY_FORMS = (
    "{p} is the capital of which country?", "Which country has the capital {p}?", "What country is {p} the capital of?",
    "Of which country is {p} the capital?", "In which country is {p}?",
)  # fmt: skip


def capital(rng: random.Random) -> Example:
    """A country's capital or the reverse; topics cannot be held out, phrasings are."""
    c = rng.choice(tuple(CAPITALS))
    p = CAPITALS[c]
    dot = "" if p.endswith(".") else "."
    if rng.random() < 0.2:
        form = rng.choice(COUNTRY_FORMS)
        turns = [Turn(casual(rng, form.format(p=p)), f"{p} is the capital of {c}.")]
        return Example("country", f"{form}{c[0]}", "", tuple(turns), c)
    form = rng.choice(CAPITAL_FORMS + HELD_CAPITAL_FORMS)
    think = f"The question is about {c}. Its capital is {p}{dot}"
    turns = [Turn(casual(rng, form.format(c=c)), f"The capital of {c} is {p}{dot}", think)]
    if rng.random() < 0.25:
        d = rng.choice(tuple(CAPITALS))
        q = CAPITALS[d]
        more = rng.choice(("And of {d}?", "And the capital of {d}?", "What about {d}?"))
        stop = "" if q.endswith(".") else "."
        turns.append(Turn(more.format(d=d), f"The capital of {d} is {q}{stop}"))
    skeleton = ALWAYS_HELD * (form in HELD_CAPITAL_FORMS) + form
    return Example("capital", skeleton, "", tuple(turns), p)

"""Exact examples about numbers: sums, word problems, counting, comparing, units."""

# ruff: noqa: E501  (tables of phrasings: one entry or one group a line)

from __future__ import annotations

import random

from training.example import Example, Turn, casual

NAMES = [
    "Tom",
    "Anna",
    "Ben",
    "Mia",
    "Leo",
    "Sara",
    "Max",
    "Lily",
    "Sam",
    "Nina",
    "Paul",
    "Emma",
    "Jack",
    "Ella",
    "Noah",
    "Zoe",
    "Lucas",
    "Ruby",
    "Adam",
    "Ivy",
    "Oscar",
    "Maya",
    "Felix",
    "Clara",
    "Hugo",
    "Alice",
    "Omar",
    "Rosa",
    "Theo",
    "Lena",
]
THINGS = [
    "apples",
    "pears",
    "books",
    "pencils",
    "coins",
    "marbles",
    "cards",
    "stamps",
    "eggs",
    "cookies",
    "flowers",
    "balls",
    "stones",
    "shells",
    "buttons",
    "candles",
    "cups",
    "plates",
    "toys",
    "stickers",
    "oranges",
    "plums",
    "nuts",
    "tickets",
    "bottles",
]

ADD = (
    "What is {a} + {b}?", "What is {a} plus {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?",
    "Calculate {a} + {b}.", "How much is {a} plus {b}?", "Add {a} and {b}.", "Add {b} to {a}.",
    "Compute {a} + {b}.", "What's {a} + {b}?", "What is the sum of {a} and {b}?",
    "Tell me {a} plus {b}.", "Can you add {a} and {b}?", "How much is {a} + {b}?",
    "Solve {a} + {b}.", "What do you get if you add {a} and {b}?", "Work out {a} + {b}.",
    "I need the sum of {a} and {b}.", "Give me the result of {a} + {b}.", "{a} plus {b}?",
    "What does {a} + {b} equal?", "Find {a} plus {b}.", "What number is {a} plus {b}?",
)  # fmt: skip
SUB = (
    "What is {a} - {b}?", "What is {a} minus {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} = ?",
    "Calculate {a} - {b}.", "How much is {a} minus {b}?", "Subtract {b} from {a}.",
    "Take {b} away from {a}.", "Compute {a} - {b}.", "What's {a} - {b}?",
    "What is the difference between {a} and {b}?", "Tell me {a} minus {b}.",
    "How much is {a} - {b}?", "Solve {a} - {b}.", "What is left if you take {b} from {a}?",
    "Work out {a} - {b}.", "Give me the result of {a} - {b}.", "{a} minus {b}?",
    "What does {a} - {b} equal?", "Find {a} minus {b}.", "Can you subtract {b} from {a}?",
)  # fmt: skip
MUL = (
    "What is {a} x {b}?", "What is {a} times {b}?", "{a} * {b}", "{a}*{b}", "{a} x {b} = ?",
    "Calculate {a} * {b}.", "How much is {a} times {b}?", "Multiply {a} by {b}.",
    "Compute {a} x {b}.", "What's {a} times {b}?", "What is the product of {a} and {b}?",
    "Tell me {a} times {b}.", "How much is {a} * {b}?", "Solve {a} x {b}.",
    "Work out {a} times {b}.", "Give me the result of {a} * {b}.", "{a} times {b}?",
    "What does {a} * {b} equal?", "Can you multiply {a} and {b}?", "What is {a} * {b}?",
)  # fmt: skip
DIV = (
    "What is {a} / {b}?", "What is {a} divided by {b}?", "{a} / {b}", "{a} / {b} = ?",
    "Calculate {a} / {b}.", "How much is {a} divided by {b}?", "Divide {a} by {b}.",
    "Compute {a} / {b}.", "What's {a} divided by {b}?", "Tell me {a} divided by {b}.",
    "How many times does {b} go into {a}?", "Solve {a} / {b}.", "Work out {a} / {b}.",
    "What does {a} / {b} equal?", "{a} divided by {b}?", "Can you divide {a} by {b}?",
)  # fmt: skip
SIGNS = {"add": ("+", ADD), "sub": ("-", SUB), "mul": ("x", MUL), "div": ("/", DIV)}


def operands(rng: random.Random, op: str) -> tuple[int, int, int]:
    """(a, b, result), all within three digits."""
    top = rng.choice((10, 20, 100, 100, 1000, 1000))
    a, b = rng.randrange(top), rng.randrange(rng.choice((top, min(top, 100))))
    if op == "add":
        return a, b, a + b
    if op == "sub":
        a, b = max(a, b), min(a, b)
        return a, b, a - b
    below_x, below_y = rng.choice(((13, 13), (100, 10), (13, 13), (21, 10)))
    x, y = rng.randrange(1, below_x), rng.randrange(1, below_y)
    if rng.random() < 0.3:
        x, y = y, x
    return (x, y, x * y) if op == "mul" else (x * y, x, y)


def columns(a: int, b: int, sign: str) -> str:
    """Column addition or subtraction in words."""
    steps, carry = [], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for place, name in enumerate(("Ones", "Tens", "Hundreds")[: max(len(x), len(y))]):
        p = int(x[place]) if place < len(x) else 0
        q = int(y[place]) if place < len(y) else 0
        extra = f" {sign} {carry}" if carry else ""
        if sign == "+":
            total = p + q + carry
            steps.append(f"{name}: {p} + {q}{extra} = {total}.")
            carry = total // 10
        else:
            total = p - q - carry
            carry = 1 if total < 0 else 0
            steps.append(f"{name}: {p + 10 * carry} - {q}{extra} = {total + 10 * carry}.")
    return " ".join(steps)


def reasoning(op: str, a: int, b: int, r: int) -> str:
    """Short exact thinking for a calculation."""
    if op in ("add", "sub"):
        return f"{columns(a, b, SIGNS[op][0])} So the result is {r}."
    if op == "div":
        return f"{b} x {r} = {a}, so {a} / {b} = {r}."
    big, small = max(a, b), min(a, b)
    if big > 12:
        tens, ones = big // 10 * 10, big % 10
        return f"{tens} x {small} = {tens * small}. {ones} x {small} = {ones * small}. Together that is {r}."
    return f"{a} x {b} = {r}."


def calculation(rng: random.Random) -> Example:
    """A bare calculation, sometimes with a follow-up on its result."""
    op = rng.choice(("add", "add", "add", "sub", "sub", "mul", "mul", "div"))
    a, b, r = operands(rng, op)
    sign, forms = SIGNS[op]
    form = rng.choice(forms)
    answer = rng.choice(("{a} {s} {b} = {r}", "{a} {s} {b} = {r}.", "{a} {s} {b} is {r}."))
    first = Turn(
        casual(rng, form.format(a=a, b=b)),
        answer.format(a=a, b=b, s=sign, r=r),
        reasoning(op, a, b, r),
    )
    turns = [first]
    if rng.random() < 0.2 and r < 900:
        c = rng.randrange(1, 100)
        more = rng.choice(
            ("And plus {c}?", "Now add {c}.", "Add {c} to that.", "Plus {c}?", "And {c} more?")
        )
        turns.append(
            Turn(
                casual(rng, more.format(c=c)),
                f"{r} + {c} = {r + c}",
                reasoning("add", r, c, r + c),
            )
        )
    return Example("sum", f"{op}:{form}", f"{op}:{a},{b}", tuple(turns), str(r))


STORY = (
    ("add", "{n} has {a} {t} and gets {b} more. How many {t} does {n} have now?", "{n} now has {r} {t}."),
    ("add", "There are {a} {t} on the table and {b} {t} in the box. How many {t} are there?", "There are {r} {t}."),
    ("add", "{n} found {a} {t} and {m} found {b}. How many did they find together?", "Together they found {r} {t}."),
    ("add", "{n} buys {a} {t} on Monday and {b} on Tuesday. How many {t} did {n} buy?", "{n} bought {r} {t}."),
    ("sub", "{n} has {a} {t} and gives {b} to {m}. How many {t} are left?", "{n} has {r} {t} left."),
    ("sub", "There were {a} {t}. {n} took {b}. How many are left?", "There are {r} {t} left."),
    ("sub", "{n} has {a} {t} and {m} has {b}. How many more does {n} have?", "{n} has {r} more {t}."),
    ("sub", "A shop has {a} {t} and sells {b} of them. How many {t} remain?", "{r} {t} remain."),
    ("mul", "{n} has {a} boxes with {b} {t} in each. How many {t} is that?", "That is {r} {t}."),
    ("mul", "One bag holds {a} {t}. How many {t} are in {b} bags?", "There are {r} {t} in {b} bags."),
    ("div", "{n} shares {a} {t} equally with {b} friends, so that each friend gets the same. How many does each friend get?", "Each friend gets {r} {t}."),
    ("div", "{a} {t} are put into {b} equal groups. How many are in each group?", "There are {r} {t} in each group."),
)  # fmt: skip


def word_problem(rng: random.Random) -> Example:
    """A one-step story problem; the answer shows the calculation."""
    op, form, answer = rng.choice(STORY)
    a, b, r = operands(rng, op)
    n, m = rng.sample(NAMES, 2)
    slots = {"a": a, "b": b, "r": r, "n": n, "m": m, "t": rng.choice(THINGS)}
    text = f"{a} {SIGNS[op][0]} {b} = {r}. {answer.format(**slots)}"
    turn = Turn(form.format(**slots), text, reasoning(op, a, b, r))
    return Example("word problem", form, f"{op}:{a},{b}", (turn,), str(r))


COUNT = (
    "Count from {a} to {b}.", "Please count from {a} to {b}.", "Can you count from {a} to {b}?",
    "Write the numbers from {a} to {b}.", "List the numbers from {a} to {b}.",
    "Start at {a} and count to {b}.", "Give me all numbers from {a} to {b}.",
    "Count upwards from {a} to {b}.", "Please list {a} to {b}.", "Numbers from {a} to {b}, please.",
    "Count {a} to {b}.", "I want the numbers from {a} to {b}.", "Write down {a} to {b} in order.",
    "Show the numbers {a} to {b}.", "Count up from {a} to {b}.", "Say the numbers from {a} to {b}.",
)  # fmt: skip
DOWN = (
    "Count down from {b} to {a}.", "Count backwards from {b} to {a}.",
    "Write the numbers from {b} down to {a}.", "Start at {b} and count down to {a}.",
    "Numbers from {b} down to {a}, please.", "Go down from {b} to {a}.", "Count in reverse from {b} to {a}.",
    "Say the numbers from {b} to {a} backwards.", "List {b} down to {a}.",
    "Can you count down from {b} to {a}?", "Give me a countdown from {b} to {a}.",
)  # fmt: skip
STEP = (
    "Count from {a} to {b} in steps of {s}.", "Count by {s}s from {a} to {b}.",
    "Write every {s}th number from {a} to {b}, beginning with {a}.",
    "Start at {a} and add {s} until you reach {b}.", "Count up to {b} by {s}s, starting at {a}.",
    "Begin with {a} and go up by {s} to {b}.", "List the numbers from {a} to {b} with steps of {s}.",
    "Go from {a} to {b} in jumps of {s}.", "Count in {s}s from {a} to {b}.",
    "Keep adding {s} to {a} until {b}.", "Write the numbers {a} to {b} in steps of {s}.",
    "Show me steps of {s} from {a} to {b}.",
)  # fmt: skip


def counting(rng: random.Random) -> Example:
    """Counting up, down or in steps, up to 20 numbers."""
    a = rng.choice((0, 1, 1, 1, rng.randrange(60), rng.randrange(200)))
    n, s = rng.randrange(3, 21), 1
    kind = rng.choice(("up", "up", "down", "step", "step"))
    if kind == "step":
        s, n = rng.randrange(2, 11), rng.randrange(3, 12)
    b = a + s * (n - 1)
    numbers = list(range(a, b + 1, s))
    forms = {"up": COUNT, "down": DOWN, "step": STEP}[kind]
    if kind == "down":
        numbers.reverse()
    form = rng.choice(forms)
    answer = ", ".join(map(str, numbers))
    think = f"I start at {numbers[0]} and go on to {numbers[-1]}."
    turn = Turn(casual(rng, form.format(a=a, b=b, s=s)), answer, think)
    return Example("count", form, f"count:{kind},{a},{b},{s}", (turn,), answer)


COMPARE = (
    ("Which is bigger, {a} or {b}?", "bigger"), ("Which number is larger: {a} or {b}?", "bigger"),
    ("Is {a} bigger than {b}?", "is"), ("Is {a} more than {b}?", "is"),
    ("Which is smaller, {a} or {b}?", "smaller"), ("Is {a} even or odd?", "parity"),
    ("Is the number {a} odd or even?", "parity"), ("What number comes after {a}?", "next"),
    ("What comes before {a}?", "before"), ("What is double {a}?", "double"),
    ("What is half of {c}?", "half"), ("What is the biggest of {l}?", "max"),
    ("What is the smallest of {l}?", "min"), ("Which of these is the largest: {l}?", "max"),
)  # fmt: skip


def comparing(rng: random.Random) -> Example:
    """Small questions about one or two numbers."""
    form, what = rng.choice(COMPARE)
    top = rng.choice((20, 100, 1000))
    a, b = rng.sample(range(1, top), 2)
    some = rng.sample(range(1, top), rng.randrange(3, 7))
    c = 2 * rng.randrange(1, top // 2)
    relation = "bigger than" if a > b else "smaller than"
    answers = {
        "bigger": f"{max(a, b)} is bigger than {min(a, b)}.",
        "smaller": f"{min(a, b)} is smaller than {max(a, b)}.",
        "is": f"{'Yes' if a > b else 'No'}, {a} is {relation} {b}.",
        "parity": f"{a} is {'odd' if a % 2 else 'even'}.",
        "next": f"{a + 1} comes after {a}.",
        "before": f"{a - 1} comes before {a}.",
        "double": f"Double {a} is {2 * a}.",
        "half": f"Half of {c} is {c // 2}.",
        "max": f"The biggest is {max(some)}.",
        "min": f"The smallest is {min(some)}.",
    }
    listed = ", ".join(map(str, some[:-1])) + f" and {some[-1]}"
    turn = Turn(casual(rng, form.format(a=a, b=b, c=c, l=listed)), answers[what])
    return Example("compare numbers", form, f"{what}:{a},{b}", (turn,))


UNITS = (
    ("kilometer", "meter", 1000), ("meter", "centimeter", 100), ("centimeter", "millimeter", 10),
    ("kilogram", "gram", 1000), ("ton", "kilogram", 1000), ("liter", "milliliter", 1000),
    ("hour", "minute", 60), ("minute", "second", 60), ("day", "hour", 24), ("week", "day", 7),
    ("year", "month", 12), ("foot", "inch", 12), ("yard", "foot", 3), ("dozen", "piece", 12),
    ("dollar", "cent", 100), ("pound", "ounce", 16), ("decade", "year", 10), ("century", "year", 100),
)  # fmt: skip
PLURALS = {"foot": "feet", "inch": "inches", "century": "centuries", "dozen": "dozen"}
UNIT_FORMS = (
    "How many {small} are in {n}?", "How many {small} are {n}?", "Convert {n} to {small}.",
    "What is {n} in {small}?", "Change {n} into {small}.", "{n} in {small}?",
    "How many {small} does {n} have?", "Express {n} in {small}.", "I have {n}. How many {small} is that?",
)  # fmt: skip


def plural(word: str, n: int) -> str:
    """`n word(s)`."""
    return f"{n} {word if n == 1 else PLURALS.get(word, word + 's')}"


def unit(rng: random.Random) -> Example:
    """Conversion by a whole factor, both ways, with the calculation."""
    big, small, factor = rng.choice(UNITS)
    n = rng.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, rng.randrange(1, 31)))
    form = rng.choice(UNIT_FORMS)
    if rng.random() < 0.65:
        text = casual(rng, form.format(n=plural(big, n), small=PLURALS.get(small, small + "s")))
        answer = f"{plural(big, n)} = {plural(small, n * factor)}."
        think = f"One {big} is {plural(small, factor)}, and {n} x {factor} = {n * factor}."
    else:
        total = n * factor
        text = casual(
            rng, form.format(n=plural(small, total), small=PLURALS.get(big, big + "s"))
        )
        answer = f"{plural(small, total)} = {plural(big, n)}."
        think = f"One {big} is {plural(small, factor)}, and {total} / {factor} = {n}."
    turn = Turn(text, answer, think)
    return Example("unit", f"{form}:{big}", f"unit:{big},{small},{n}", (turn,))

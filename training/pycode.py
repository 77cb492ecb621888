"""Short Python answers, each one executed while the data is made; the printed result is real.

A task is a description with slots, code with the same slots, and calls to show. Only tasks whose
code ran and whose calls printed are used.
"""

# ruff: noqa: E501  (tables of phrasings: one entry or one group a line)

from __future__ import annotations

import contextlib
import io
import random
from functools import lru_cache

from training.example import Example, Turn, casual

ASK = (
    "Write a Python function that {d}.", "Write a function in Python that {d}.", "Python: a function that {d}",
    "I need a Python function that {d}.", "Can you write a Python function that {d}?", "Show me Python code that {d}.",
    "Give me a Python function that {d}.", "How do I write a function that {d} in Python?", "Write Python code that {d}.",
    "Please write a short Python function that {d}.", "Code a function that {d}.", "Make a Python function that {d}.",
    "Give me a short Python example that {d}.", "Write a small program that {d}.",
)  # fmt: skip
# (description, explanation, code, calls). Slots: {f} function name, {k} a number, {x} a letter.
TASKS = (
    ("adds two numbers", "It returns the sum of a and b.", "def {f}(a, b):\n    return a + b", ("{f}(2, 3)", "{f}(10, 5)")),
    ("subtracts two numbers", "It returns a minus b.", "def {f}(a, b):\n    return a - b", ("{f}(9, 4)",)),
    ("multiplies two numbers", "It returns a times b.", "def {f}(a, b):\n    return a * b", ("{f}(4, 5)",)),
    ("adds {k} to a number", "It adds {k} and returns the result.", "def {f}(n):\n    return n + {k}", ("{f}(5)",)),
    ("multiplies a number by {k}", "It returns n times {k}.", "def {f}(n):\n    return n * {k}", ("{f}(7)",)),
    ("checks if a number is bigger than {k}", "It compares n with {k}.", "def {f}(n):\n    return n > {k}", ("{f}(3)", "{f}(50)")),
    ("checks if a number is divisible by {k}", "The remainder is 0 if n is divisible by {k}.", "def {f}(n):\n    return n % {k} == 0", ("{f}(12)", "{f}(35)")),
    ("returns the square of a number", "It multiplies n by itself.", "def {f}(n):\n    return n * n", ("{f}(6)",)),
    ("returns the cube of a number", "It raises n to the third power.", "def {f}(n):\n    return n ** 3", ("{f}(3)",)),
    ("checks if a number is even", "An even number has remainder 0 when divided by 2.", "def {f}(n):\n    return n % 2 == 0", ("{f}(4)", "{f}(7)")),
    ("checks if a number is odd", "An odd number has remainder 1 when divided by 2.", "def {f}(n):\n    return n % 2 == 1", ("{f}(4)", "{f}(7)")),
    ("checks if a number is negative", "It compares n with zero.", "def {f}(n):\n    return n < 0", ("{f}(-2)", "{f}(5)")),
    ("returns the bigger of two numbers", "It uses max.", "def {f}(a, b):\n    return max(a, b)", ("{f}(3, 8)",)),
    ("returns the smaller of two numbers", "It uses min.", "def {f}(a, b):\n    return min(a, b)", ("{f}(3, 8)",)),
    ("returns the largest number in a list", "It uses max on the list.", "def {f}(numbers):\n    return max(numbers)", ("{f}([3, 9, 2])",)),
    ("returns the smallest number in a list", "It uses min on the list.", "def {f}(numbers):\n    return min(numbers)", ("{f}([3, 9, 2])",)),
    ("adds all numbers in a list", "It uses sum.", "def {f}(numbers):\n    return sum(numbers)", ("{f}([1, 2, 3])",)),
    ("adds the numbers of a list with a loop", "The loop adds each number to total.", "def {f}(numbers):\n    total = 0\n    for n in numbers:\n        total += n\n    return total", ("{f}([4, 5, 6])",)),
    ("computes the average of a list", "It divides the sum by the length.", "def {f}(numbers):\n    return sum(numbers) / len(numbers)", ("{f}([2, 4, 6])",)),
    ("multiplies every number in a list by {k}", "A list comprehension multiplies each item.", "def {f}(numbers):\n    return [n * {k} for n in numbers]", ("{f}([1, 2, 3])",)),
    ("adds {k} to every number in a list", "A list comprehension adds {k} to each item.", "def {f}(numbers):\n    return [n + {k} for n in numbers]", ("{f}([1, 2, 3])",)),
    ("keeps the numbers bigger than {k}", "Only numbers above {k} are kept.", "def {f}(numbers):\n    return [n for n in numbers if n > {k}]", ("{f}([1, 5, 12, 30])",)),
    ("keeps the numbers smaller than {k}", "Only numbers below {k} are kept.", "def {f}(numbers):\n    return [n for n in numbers if n < {k}]", ("{f}([1, 5, 12, 30])",)),
    ("counts the numbers bigger than {k} in a list", "It counts with a condition.", "def {f}(numbers):\n    return sum(1 for n in numbers if n > {k})", ("{f}([1, 5, 12, 30])",)),
    ("keeps the even numbers of a list", "It keeps numbers with remainder 0.", "def {f}(numbers):\n    return [n for n in numbers if n % 2 == 0]", ("{f}([1, 2, 3, 4])",)),
    ("keeps the odd numbers of a list", "It keeps numbers with remainder 1.", "def {f}(numbers):\n    return [n for n in numbers if n % 2 == 1]", ("{f}([1, 2, 3, 4])",)),
    ("squares every number in a list", "Each number is multiplied by itself.", "def {f}(numbers):\n    return [n * n for n in numbers]", ("{f}([1, 2, 3])",)),
    ("returns the first {k} items of a list", "Slicing takes the first {k} items.", "def {f}(items):\n    return items[:{k}]", ("{f}([1, 2, 3, 4, 5, 6])",)),
    ("returns the last {k} items of a list", "A negative slice takes the last {k} items.", "def {f}(items):\n    return items[-{k}:]", ("{f}([1, 2, 3, 4, 5, 6])",)),
    ("returns every {k}th item of a list", "The slice steps by {k}.", "def {f}(items):\n    return items[::{k}]", ("{f}([1, 2, 3, 4, 5, 6])",)),
    ("reverses a list", "The slice walks backwards.", "def {f}(items):\n    return items[::-1]", ("{f}([1, 2, 3])",)),
    ("reverses a string", "The slice walks backwards.", "def {f}(text):\n    return text[::-1]", ("{f}('hello')",)),
    ("sorts a list of numbers", "It uses sorted.", "def {f}(numbers):\n    return sorted(numbers)", ("{f}([3, 1, 2])",)),
    ("sorts a list from large to small", "sorted can sort in reverse.", "def {f}(numbers):\n    return sorted(numbers, reverse=True)", ("{f}([3, 1, 2])",)),
    ("sorts words by length", "The key is the length of each word.", "def {f}(words):\n    return sorted(words, key=len)", ("{f}(['pear', 'fig', 'banana'])",)),
    ("returns the longest word of a list", "max compares the lengths.", "def {f}(words):\n    return max(words, key=len)", ("{f}(['pear', 'fig', 'banana'])",)),
    ("returns the shortest word of a list", "min compares the lengths.", "def {f}(words):\n    return min(words, key=len)", ("{f}(['pear', 'fig', 'banana'])",)),
    ("counts the words in a text", "split cuts the text at spaces.", "def {f}(text):\n    return len(text.split())", ("{f}('the cat sat')",)),
    ("counts the letter {x} in a text", "It uses count.", "def {f}(text):\n    return text.count('{x}')", ("{f}('banana and apple')",)),
    ("counts the vowels in a text", "It looks at each letter.", "def {f}(text):\n    return sum(1 for c in text.lower() if c in 'aeiou')", ("{f}('banana')",)),
    ("removes the vowels from a text", "It keeps the other letters.", "def {f}(text):\n    return ''.join(c for c in text if c not in 'aeiouAEIOU')", ("{f}('banana')",)),
    ("removes the letter {x} from a text", "It replaces the letter with nothing.", "def {f}(text):\n    return text.replace('{x}', '')", ("{f}('banana and apple')",)),
    ("removes all spaces from a text", "It replaces spaces with nothing.", "def {f}(text):\n    return text.replace(' ', '')", ("{f}('a b c')",)),
    ("replaces spaces with underscores", "It uses replace.", "def {f}(text):\n    return text.replace(' ', '_')", ("{f}('a b c')",)),
    ("makes a text upper case", "It uses upper.", "def {f}(text):\n    return text.upper()", ("{f}('hello')",)),
    ("makes a text lower case", "It uses lower.", "def {f}(text):\n    return text.lower()", ("{f}('Hello')",)),
    ("capitalizes every word", "It uses title.", "def {f}(text):\n    return text.title()", ("{f}('the big dog')",)),
    ("repeats a text {k} times", "Multiplying a string repeats it.", "def {f}(text):\n    return text * {k}", ("{f}('ab')",)),
    ("checks if a word is a palindrome", "It compares the word with its reverse.", "def {f}(word):\n    return word == word[::-1]", ("{f}('level')", "{f}('cat')")),
    ("checks if a text starts with the letter {x}", "It uses startswith.", "def {f}(text):\n    return text.startswith('{x}')", ("{f}('apple')",)),
    ("checks if a text ends with the letter {x}", "It uses endswith.", "def {f}(text):\n    return text.endswith('{x}')", ("{f}('sea')",)),
    ("checks if a text contains only digits", "It uses isdigit.", "def {f}(text):\n    return text.isdigit()", ("{f}('123')", "{f}('12a')")),
    ("returns the length of a text", "It uses len.", "def {f}(text):\n    return len(text)", ("{f}('hello')",)),
    ("returns the first letter of a word", "Index 0 is the first letter.", "def {f}(word):\n    return word[0]", ("{f}('hello')",)),
    ("returns the last letter of a word", "Index -1 is the last letter.", "def {f}(word):\n    return word[-1]", ("{f}('hello')",)),
    ("joins a list of words with commas", "It uses join.", "def {f}(words):\n    return ', '.join(words)", ("{f}(['a', 'b', 'c'])",)),
    ("splits a text into words", "It uses split.", "def {f}(text):\n    return text.split()", ("{f}('the big dog')",)),
    ("removes duplicates from a list", "dict keeps the order and drops repeats.", "def {f}(items):\n    return list(dict.fromkeys(items))", ("{f}([3, 1, 3, 2, 1])",)),
    ("computes the factorial of a number", "The loop multiplies 1 to n.", "def {f}(n):\n    result = 1\n    for i in range(2, n + 1):\n        result *= i\n    return result", ("{f}(5)",)),
    ("computes the factorial with recursion", "The function calls itself with n - 1.", "def {f}(n):\n    if n <= 1:\n        return 1\n    return n * {f}(n - 1)", ("{f}(5)",)),
    ("returns the n-th Fibonacci number", "Each number is the sum of the two before.", "def {f}(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a", ("{f}(10)",)),
    ("lists the first n Fibonacci numbers", "The loop appends each number.", "def {f}(n):\n    numbers = []\n    a, b = 0, 1\n    for _ in range(n):\n        numbers.append(a)\n        a, b = b, a + b\n    return numbers", ("{f}(6)",)),
    ("checks if a number is prime", "It tries all divisors up to the root.", "def {f}(n):\n    if n < 2:\n        return False\n    for i in range(2, int(n ** 0.5) + 1):\n        if n % i == 0:\n            return False\n    return True", ("{f}(7)", "{f}(9)")),
    ("lists the prime numbers up to n", "It keeps numbers without a divisor.", "def {f}(n):\n    return [i for i in range(2, n + 1) if all(i % j for j in range(2, i))]", ("{f}(20)",)),
    ("lists the divisors of a number", "It keeps numbers that divide n.", "def {f}(n):\n    return [i for i in range(1, n + 1) if n % i == 0]", ("{f}(12)",)),
    ("adds the digits of a number", "It turns the number into text.", "def {f}(n):\n    return sum(int(d) for d in str(n))", ("{f}(123)",)),
    ("counts the digits of a number", "It turns the number into text.", "def {f}(n):\n    return len(str(n))", ("{f}(1234)",)),
    ("adds the numbers from 1 to n", "range ends before n + 1.", "def {f}(n):\n    return sum(range(1, n + 1))", ("{f}(10)",)),
    ("lists the numbers from 1 to n", "range ends before n + 1.", "def {f}(n):\n    return list(range(1, n + 1))", ("{f}(5)",)),
    ("lists the multiples of {k} up to n", "range steps by {k}.", "def {f}(n):\n    return list(range({k}, n + 1, {k}))", ("{f}(40)",)),
    ("computes n to the power of {k}", "** is the power operator.", "def {f}(n):\n    return n ** {k}", ("{f}(2)",)),
    ("converts Celsius to Fahrenheit", "It uses the usual formula.", "def {f}(c):\n    return c * 9 / 5 + 32", ("{f}(100)", "{f}(0)")),
    ("converts Fahrenheit to Celsius", "It uses the usual formula.", "def {f}(f):\n    return (f - 32) * 5 / 9", ("{f}(212)",)),
    ("converts kilometers to meters", "One kilometer is 1000 meters.", "def {f}(km):\n    return km * 1000", ("{f}(3)",)),
    ("converts hours to minutes", "One hour has 60 minutes.", "def {f}(hours):\n    return hours * 60", ("{f}(2)",)),
    ("computes the area of a rectangle", "The area is width times height.", "def {f}(width, height):\n    return width * height", ("{f}(3, 4)",)),
    ("computes the perimeter of a rectangle", "It adds all four sides.", "def {f}(width, height):\n    return 2 * (width + height)", ("{f}(3, 4)",)),
    ("computes the area of a triangle", "It is half of base times height.", "def {f}(base, height):\n    return base * height / 2", ("{f}(6, 4)",)),
    ("returns the absolute value of a number", "It uses abs.", "def {f}(n):\n    return abs(n)", ("{f}(-4)",)),
    ("checks if a year is a leap year", "It follows the calendar rule.", "def {f}(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)", ("{f}(2024)", "{f}(1900)")),
    ("merges two lists", "+ joins two lists.", "def {f}(a, b):\n    return a + b", ("{f}([1, 2], [3])",)),
    ("merges two dictionaries", "** copies all keys.", "def {f}(a, b):\n    return {{**a, **b}}", ("{f}({{'a': 1}}, {{'b': 2}})",)),
    ("swaps the keys and values of a dictionary", "It builds a new dictionary.", "def {f}(d):\n    return {{v: k for k, v in d.items()}}", ("{f}({{'a': 1, 'b': 2}})",)),
    ("counts how often each letter occurs", "get gives 0 for a new letter.", "def {f}(text):\n    counts = {{}}\n    for c in text:\n        counts[c] = counts.get(c, 0) + 1\n    return counts", ("{f}('noon')",)),
    ("checks if an item is in a list", "It uses in.", "def {f}(items, item):\n    return item in items", ("{f}([1, 2], 2)",)),
    ("checks if a list is empty", "An empty list has length 0.", "def {f}(items):\n    return len(items) == 0", ("{f}([])", "{f}([1])")),
    ("checks if two words are anagrams", "Sorted letters must be equal.", "def {f}(a, b):\n    return sorted(a) == sorted(b)", ("{f}('listen', 'silent')",)),
    ("returns the items that two lists share", "It keeps items that are in both.", "def {f}(a, b):\n    return [x for x in a if x in b]", ("{f}([1, 2, 3], [2, 3, 4])",)),
    ("flattens a list of lists", "Two loops in one comprehension.", "def {f}(lists):\n    return [x for part in lists for x in part]", ("{f}([[1, 2], [3]])",)),
    ("returns the second largest number", "It sorts and takes the item before the last.", "def {f}(numbers):\n    return sorted(numbers)[-2]", ("{f}([3, 9, 2])",)),
    ("converts a number to binary", "bin gives a prefix, so it is cut off.", "def {f}(n):\n    return bin(n)[2:]", ("{f}(5)",)),
    ("computes the greatest common divisor", "It is the method of Euclid.", "def {f}(a, b):\n    while b:\n        a, b = b, a % b\n    return a", ("{f}(12, 18)",)),
    ("says hello to a name", "An f-string puts the name in.", "def {f}(name):\n    return f'Hello, {{name}}!'", ("{f}('Anna')",)),
    ("builds a times table for a number", "It lists n times 1 to 10.", "def {f}(n):\n    return [n * i for i in range(1, 11)]", ("{f}({k})",)),
)  # fmt: skip
NAMES = ["f", "solve", "compute", "my_function", "calculate", "run", "get_result", "do_it"]
STOP = {
    "a",
    "an",
    "the",
    "of",
    "in",
    "with",
    "to",
    "if",
    "is",
    "and",
    "every",
    "all",
    "as",
    "by",
    "from",
    "that",
    "into",
    "than",
}


def function_name(rng: random.Random, description: str) -> str:
    """A snake-case name from the description, or a plain one."""
    if rng.random() < 0.1:
        return rng.choice(NAMES)
    words = [w for w in description.replace("-", " ").split() if w not in STOP and w.isalpha()]
    return "_".join([words[0].removesuffix("s").lower(), *(w.lower() for w in words[1:3])])


@lru_cache(maxsize=100_000)
def printed(code: str, calls: tuple[str, ...]) -> tuple[str, ...] | None:
    """What each call prints, by running the code; None if anything fails."""
    space: dict[str, object] = {}
    lines: list[str] = []
    try:
        exec(code, space)
        for call in calls:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(f"print({call})", space)
            lines.append(out.getvalue().strip())
    except Exception:  # noqa: BLE001
        return None
    return tuple(lines)


def python(rng: random.Random) -> Example:
    """A request for a small function and its executed answer, some with a follow-up."""
    while True:
        description, why, code, calls = rng.choice(TASKS)
        k, x = rng.randrange(2, 10), rng.choice("aeinst")
        said = description.format(k=k, x=x)
        name = function_name(rng, said)
        code = code.format(f=name, k=k, x=x)
        shown = tuple(c.format(f=name, k=k, x=x) for c in calls)
        results = printed(code, shown)
        if results is not None and all(results):
            break
    prints = "\n".join(f"print({c})  # {r}" for c, r in zip(shown, results, strict=True))
    text = why.format(k=k, x=x)
    form = rng.choice(ASK)
    answer = f"```python\n{code}\n\n{prints}\n```"
    if rng.random() < 0.6:
        answer += f"\n\n{text}"
    think = f"The function {said}. I write it in a few lines and show a call."
    turns = [Turn(casual(rng, form.format(d=said)), answer, think)]
    if rng.random() < 0.15:
        more = rng.choice(
            ("How does it work?", "Explain it.", "Why does this work?", "Can you explain that?")
        )
        turns.append(
            Turn(
                more,
                f"{text} Then print shows the result of {shown[0]}, which is {results[0]}.",
            )
        )
    return Example(
        "python", f"{form}:{description}", f"python:{said}", tuple(turns), results[0]
    )

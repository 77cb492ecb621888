from __future__ import annotations

import pytest

from ds4chat.text.template import MAX_TEMPLATE_CHARS, string_variables


def value(template: str) -> str | None:
    return string_variables(template, {"x"}).get("x")


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ('{%- set x = "plain" %}', "plain"),
        ("{% set x='single' -%}", "single"),
        ("{%set x = 'tight'%}", "tight"),
        ('{%+ set x = "a" +%}', "a"),
        ('{% set x = "" %}', ""),
        ('{% set x = "two\\nlines\\t\\"quoted\\" \\\\n" %}', 'two\nlines\t"quoted" \\n'),
        ("{% set x = 'it\\'s' %}", "it's"),
        ('{% set x = "dash \\u2014 \\x41 \\U0001F600 \\101" %}', "dash — A 😀 A"),
        ('{% set x = "kept \\d \\q" %}', "kept \\d \\q"),
        ('{% set x = "beyond \\UFFFFFFFF" %}', "beyond \ufffd"),
        ('{% set x = "real\nnewline" %}', "real\nnewline"),
        ('{% set x = "joined\\\nline" %}', "joinedline"),
        ('{% set x = "a" ~ "b" + \'c\' "d" %}', "abcd"),
        ('{% set x = "has %} and }} in it" %}', "has %} and }} in it"),
        ('{% set y = "{% set x = 1 %}" %}{% set x = "2" %}', "2"),
        ('{% if a == "%}" %}{% set x = "in if" %}{% endif %}', "in if"),
        ('{% set x = "old" %}{% set x = "new" %}', "new"),
        ('{{ "{% set x = \'no\' %}" }}{% set x = "yes" %}', "yes"),
        ('{# don\'t {% set x = "no" %} #}{% set x = "yes" %}', "yes"),
        ('text "{% set x = "yes" %}', "yes"),
        ('{% raw %}{% set x = "no" %}{% endraw %}{% set x = "yes" %}', "yes"),
    ],
)
def test_values_are_read(template: str, wanted: str) -> None:
    assert value(template) == wanted


@pytest.mark.parametrize(
    "template",
    [
        "",
        "no statements",
        "{% set x = y %}",
        "{% set x = 1 %}",
        '{% set x = "a" if y else "b" %}',
        '{% set x = "a" | upper %}',
        '{% set x = "a" ~ y %}',
        '{% set xx = "a" %}',
        '{% set ns.x = "a" %}',
        '{% set x, y = "a", "b" %}',
        "{% set x %}block{% endset %}",
        '{% set x = "unterminated %}',
        '{% set x = "open"',
        '{# {% set x = "comment" %} #}',
        '{# unterminated {% set x = "a" %}',
        '{% raw %}{% set x = "raw" %}{% endraw %}',
        '{%- raw -%}{% set x = "raw" %}{%- endraw -%}',
        '{% raw %}{% set x = "raw" %}',
        "{{ \"{% set x = 'a' %}\" }}",
        'set x = "a"',
    ],
)
def test_everything_else_is_absent(template: str) -> None:
    assert value(template) is None


def test_only_the_asked_names() -> None:
    template = '{% set x = "1" %}{% set y = "2" %}{% set z = "3" %}'
    assert string_variables(template, {"x", "z"}) == {"x": "1", "z": "3"}


@pytest.mark.parametrize(
    "unit",
    [
        " ",
        "{%",
        "{#",
        "{{",
        '"',
        "'",
        '"a"',
        '{% set x = "',
        '{% set x = "a" ~ ',
        "\\",
        "{% raw %}",
    ],
)
def test_hostile_templates_end_quickly(unit: str) -> None:
    body = unit * (200_000 // len(unit))
    assert value('{% set x = "a" ' + body) is None
    assert value(body) is None


def test_a_huge_template_is_not_read() -> None:
    assert value('{% set x = "a" %}' + " " * MAX_TEMPLATE_CHARS) is None

"""The check of numbers in prose: which are looked at, what counts as shown, what as cited."""

import nbformat
import pytest

from fedbook.book.check_numbers import numbers_are_on_the_page, output_numbers, uncited
from fedbook.book.checked_book import Book


def numbers(markdown):
    return [text for text, _, _ in uncited(markdown)]


@pytest.mark.parametrize(
    ("markdown", "looked_at"),
    [
        ("Accuracy is 0.94, not 1,234.5 or .5.", ["0.94", "1,234.5", ".5"]),
        ("With $\\eta=0.05$ and $$x = -1.5\\,\\%$$", ["0.05 %", "1.5 %"]),
        ("From 94.1 to 95.2 %.", ["94.1 %", "95.2 %"]),
        ("It is 8.4 points better. It is 8.4 better.", ["8.4 %", "8.4"]),
        ("About 1.2e-5, $1.3\\cdot10^{-5}$ and 1.4 × 10⁻⁵.", ["1.2e-5", "1.3e-5", "1.4e-5"]),
        ("| method | 0.93 |\n|---|---|\n| other | 0.94 ± 0.01 |", ["0.93", "0.94", "0.01"]),
        ("Below 1e-12 in 2024, 36 of 36, 10^{-3}.", []),
        ("`rate = 0.5`, ``a `0.5` b`` and\n\n```python\nrate = 0.5\n```\n", []),
        ("By Theorem 4.2, Lemma A.3, (5), Section 3.1 and Figure 2.1", []),
        ("By Theorems 4.2 and 4.3, equation (3.2), § 2.1, Eq. 3.4, Algorithm 1.1", []),
        ("## 3.1 Results", []),
        ("Python 3.11, 3.12 and 3.13 with torch 2.13.0, PyTorch 2.11, version 1.4, CC BY 4.0", []),
        ("arXiv 2404.10029 and arXiv:1602.05629", []),
        ("$$a = b \\tag{1.2}$$", []),
        ('<img alt="0.5" width="1.5"> [x](02_other.ipynb#a-0.5)', []),
        ("Theorem 4.2 gives 0.94.", ["0.94"]),
        ("Table 2: 0.94. In Table 2 and 0.5 later. The step 0.1.", ["0.94", "0.5", "0.1"]),
    ],
)
def test_which_numbers_are_looked_at(markdown, looked_at):
    assert numbers(markdown) == looked_at


@pytest.mark.parametrize(
    ("markdown", "looked_at"),
    [
        ("They report 0.94 ([Table 2](https://arxiv.org/abs/2206.08330)). We get 0.93.", ["0.93"]),
        ("They report 0.94 <!-- cited: Table 2 -->. We get 0.93.", ["0.93"]),
        ("They report 0.94 <sup>[paper, section 5.1]</sup>. We get 0.93.", ["0.93"]),
        ("We get 0.93 here, e.g. 0.5. They report 0.94 <!-- cited -->.", ["0.93", "0.5"]),
        ("<!-- cited: Table 2 -->\n\n| a | 0.1 |\n|---|---|\n| b | 0.2 |\n\nWe get 0.93.", ["0.93"]),
        ("<!-- cited: Table 2 -->\n| a | 0.1 |\n|---|---|\n| b | 0.2 |\n\nWe get 0.93.", ["0.93"]),
        ("* theirs 0.94 <!-- cited -->\n* ours 0.93", ["0.93"]),
        ("<!-- another remark --> It is 0.94, as [there](01_fedsc.ipynb).", ["0.94"]),
    ],
)
def test_what_is_cited(markdown, looked_at):
    assert numbers(markdown) == looked_at


@pytest.mark.parametrize(
    ("text", "output", "stands"),
    [
        ("0.94", "accuracy 0.9412", True),
        ("0.94", "accuracy 0.9449 and 0.935", True),
        ("0.94", "accuracy 0.9349 and 0.9451", False),
        ("0.94", "accuracy 0.9", False),
        ("0.9412", "accuracy 0.94", False),
        ("94.1 %", "accuracy 0.9412", True),
        ("94.1", "accuracy 0.9412", False),
        ("-0.5", "fell by 0.5", True),
        ("2.0", "K = 2", True),
        ("1,234.5", "bytes 1234.46", True),
        ("0.00001", "1e-5", True),
        ("1.2e-5", "1.24e-05", True),
        ("1.2e-5", "1.26e-05", False),
        ("3.5", "step3.5x", False),
    ],
)
def test_a_number_stands_in_an_output_that_rounds_to_it(mini, text, output, stands):
    book = mini.notebook(mini.markdown(f"It is {text}."), mini.printed(mini.code("1"), output, 1))
    problems = list(numbers_are_on_the_page(Book("x", book, 1.0, tuple(enumerate(book.cells, start=1)))))
    assert [problem.cell for problem in problems] == ([] if stands else [1])


def test_a_number_stands_in_its_own_section_and_the_last_may_take_any(mini):
    heads = [mini.markdown(f"## {i}\n\nIt is 0.94, with steps of 0.3.") for i in range(3)]
    first, second = mini.printed(mini.code("lr = 0.3"), "0.941", 1), mini.printed(mini.code("lr = 0.3"), "0.93", 2)
    book = mini.notebook(heads[0], first, heads[1], second, heads[2])
    problems = list(numbers_are_on_the_page(Book("x", book, 1.0, tuple(enumerate(book.cells, start=1)))))
    assert [(problem.cell, problem.message.split()[0]) for problem in problems] == [(3, "0.94")]


def test_solutions_are_not_looked_at(mini):
    book = mini.notebook(mini.markdown("It is 0.5.", "solution", "ex-00-1"), mini.markdown("[1.5](x)", "nav"))
    assert not list(numbers_are_on_the_page(Book("x", book, 1.0, tuple(enumerate(book.cells, start=1)))))


def test_tables_and_records_are_read_and_pictures_are_not(mini):
    cell = mini.code("1")
    data = {
        "text/html": "<script>x = 9.5</script><td>0.25</td><td>1,500.5</td>",
        "application/vnd.fedbook.record+json": {"a": [1.75]},
    }
    data["image/svg+xml"] = "<text>7.75</text>"
    cell.outputs = [nbformat.v4.new_output("display_data", data=data)]
    assert output_numbers(cell) == {0.25, 1500.5, 1.75}

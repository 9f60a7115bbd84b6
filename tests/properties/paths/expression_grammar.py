"""Random expressions over the columns of some inputs, many of which fail on some row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.properties.paths.expressions import Call, Column, Constant, Expression, columns_of, is_whole
from tests.properties.paths.values import (
    BIGINT,
    BOOLEAN,
    COMMON,
    DATE,
    DOUBLE,
    INT,
    SMALL_DECIMAL,
    TIMESTAMP,
    VARCHAR,
    is_decimal,
)
from tests.properties.picker import Picker

_COMPARABLE: Final = (INT, BIGINT, DOUBLE, VARCHAR, BOOLEAN, DATE, TIMESTAMP, SMALL_DECIMAL)


class Expressions:
    """The grammar over some columns.

    Args:
        fails: False: nothing is drawn that can fail.
    """

    def __init__(self, pick: Picker, columns: Sequence[Column], *, fails: bool = True) -> None:
        self.pick = pick
        self.columns = list(columns)
        self.fails = fails

    def of(self, *types: str) -> list[Column]:
        """The columns of these types."""
        return [each for each in self.columns if each.type in types]

    def column(self) -> Column:
        return self.pick.one(self.columns)

    def any(self) -> Expression:
        """A value of any type: a column, or something computed."""
        forms = [self.column, self.column, self.text]
        forms += [self.number, self.number, self.whole_cast, self.date_cast] if self.fails else [self.sound_number]
        forms.append(self.chosen)
        return self.pick.one(forms)()

    def number(self, depth: int = 1) -> Expression:
        """Arithmetic over the columns of numbers, which fails where it divides by zero or leaves its type."""
        left, right = self._operand(depth), self._operand(depth)
        if is_decimal(left.type) or is_decimal(right.type):
            left, right = self._both_small(left), self._both_small(right)
        kind = _wider(left.type, right.type)
        form = self.pick.count(0, 5)
        if form == 5 and not is_decimal(left.type):
            return Call(self.pick.one(["NEGATE", "ABS"]), (left,), left.type)
        sign = self.pick.one(["/", "/", "%", "+", "-", "*"])
        return Call(sign, (left, right), _of_decimals(sign) if is_decimal(kind) else kind)

    def _operand(self, depth: int) -> Expression:
        numbers = self.of(INT, BIGINT, DOUBLE, SMALL_DECIMAL)
        if depth and self.fails and self.pick.chance(20):
            made = self.number(depth - 1)
            return made if not is_decimal(made.type) else Constant(2, INT)
        if not numbers or self.pick.chance(25):
            return Constant(self.pick.one([1, 2, 3, 10, -1, 0]), INT)
        return self.pick.one(numbers)

    def _both_small(self, value: Expression) -> Expression:
        """The value where a DECIMAL stands on the other side; numbers of other types are left out of such pairs."""
        if value.type == SMALL_DECIMAL:
            return value
        decimals = self.of(SMALL_DECIMAL)
        return self.pick.one(decimals)

    def sound_number(self) -> Expression:
        """A number that cannot fail."""
        doubles = self.of(DOUBLE)
        if doubles and self.pick.chance(60):
            return Call(self.pick.one(["+", "-", "*"]), (self.pick.one(doubles), self.pick.one(doubles)), DOUBLE)
        return Call("LENGTH", (self.text(),), INT)

    def whole_cast(self) -> Expression:
        """A text or a number as a whole one."""
        values = self.of(VARCHAR, VARCHAR, BIGINT, DOUBLE, SMALL_DECIMAL)
        if not values:
            return self.number()
        return Call("CAST", (self.pick.one(values),), self.pick.one([INT, INT, BIGINT]))

    def date_cast(self) -> Expression:
        """A text as a date."""
        texts = self.of(VARCHAR)
        return Call("CAST", (self.pick.one(texts),), DATE) if texts else self.whole_cast()

    def text(self) -> Expression:
        """A text that cannot fail."""
        texts: list[Expression] = [*self.of(VARCHAR)]
        wholes = self.of(INT, BIGINT)
        if wholes and self.pick.chance(30):
            texts = [Call("CAST", (self.pick.one(wholes),), VARCHAR)]
        if not texts:
            return Constant("c", VARCHAR)
        made = self.pick.one(texts)
        if self.pick.chance(30):
            others: list[Expression] = [*self.of(VARCHAR), Constant("-", VARCHAR)]
            return Call("||", (made, self.pick.one(others)), VARCHAR)
        return made

    def chosen(self) -> Expression:
        """CASE or COALESCE, of which only what is taken can fail."""
        if self.pick.chance(50):
            value = self.whole()
            return Call("COALESCE", (value, self.whole_like(value)), value.type)
        first = self.whole()
        return Call("CASE", (self.condition(), first, self.whole_like(first)), first.type)

    def whole(self) -> Expression:
        """A whole number."""
        if self.fails and self.pick.chance(60):
            made = self.pick.one([self.number, self.whole_cast])()
            if is_whole(made.type):
                return made
        columns = self.of(INT, BIGINT)
        return self.pick.one(columns) if columns else Constant(1, INT)

    def whole_like(self, other: Expression) -> Expression:
        """A value of the same type."""
        made = self.whole()
        return made if made.type == other.type else Constant(self.pick.one([0, 1, None]), other.type)

    def condition(self) -> Expression:
        """A condition; where it can fail, it is perhaps guarded by another one."""
        forms = [self.comparison, self.comparison, self.null_test]
        if self.fails:
            forms += [self.computed, self.computed]
        made = self.pick.one(forms)()
        if self.pick.chance(30):
            return Call(self.pick.one(["AND", "OR"]), (made, self.pick.one(forms)()), BOOLEAN)
        return Call("NOT", (made,), BOOLEAN) if self.pick.chance(10) else made

    def comparison(self) -> Expression:
        """A column against a usual value of its type, or another column of it."""
        columns = self.of(INT, BIGINT, VARCHAR, DOUBLE)
        if not columns:
            return self.null_test()
        left = self.pick.one(columns)
        others: list[Expression] = [each for each in self.of(left.type) if each != left]
        if left.type != DOUBLE:
            others += [Constant(value, left.type) for value in COMMON[left.type][:3]]
        if not others:
            return self.null_test()
        sign = self.pick.one(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM"])
        return Call(sign, (left, self.pick.one(others)), BOOLEAN)

    def null_test(self) -> Expression:
        return Call("IS NULL", (self.column(),), BOOLEAN)

    def computed(self) -> Expression:
        """A comparison of something that can fail."""
        value = self.whole()
        if not columns_of(value):
            return self.null_test()  # nothing below a constant condition is computed by a pull
        sign = self.pick.one(["=", "<>", "<", ">"])
        return Call(sign, (value, Constant(self.pick.one([0, 1, 2]), INT)), BOOLEAN)


def _wider(left: str, right: str) -> str:
    if DOUBLE in (left, right):
        return DOUBLE
    if is_decimal(left) or is_decimal(right):
        return SMALL_DECIMAL
    return BIGINT if BIGINT in (left, right) else INT


def _of_decimals(sign: str) -> str:
    """The type of a result of two DECIMAL(8, 2): docs/functions.md."""
    return {"*": "DECIMAL(17, 4)", "/": "DECIMAL(19, 11)", "%": "DECIMAL(8, 2)"}.get(sign, "DECIMAL(9, 2)")

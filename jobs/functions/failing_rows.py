"""Rows on which an expression fails: which those are, and what becomes of them. The one definition for every path.

    SELECT id, 10 / n AS x FROM s WHERE kind = 'a' AND CAST(t AS INT) > 1

    sure       kind = 'a'              what cannot fail decides first, wherever it stands in the text
    unsure     CAST(t AS INT) > 1      then what can, from left to right
    fails      sure AND (CAST(t AS INT) fails OR (CAST(t AS INT) > 1 AND 10 / n fails))

A row that fails is left out (`sound`), kept aside (`fails`), or an error (`checked`); where it is to be NULL, no row
fails (`lenient`). None of the four leaves anything to the order in which an engine evaluates: `fails` is total, and an
error is raised by it alone. So whether a row fails is a function of the row, however it came.

In a join the condition ON is asked of pairs of rows, and an equality of its sides:

    a JOIN b ON CAST(a.t AS INT) = b.id AND a.x / b.n > 1

    a pair on which `a.x / b.n > 1` fails, of those that meet the rest of ON, is a joined row that fails
    a row of a on which `CAST(a.t AS INT)` fails joins nothing, and fails by itself, whatever b holds (`Apart`)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail, failing, in_words, lenient
from strandline.jobs.functions.faults import words_of
from strandline.jobs.functions.scalars.domains import FAIL, guards_in, is_guard, name_of
from strandline.jobs.sql.trees import all_of, any_of, call, columns_in, conjuncts

BREAKS = "breaks "
"""The reason of a row that breaks an expectation begins so; any other is of a row on which an expression fails."""

_DECIDING = ("semi", "anti")
"""Joins that give no columns: a pair of theirs is no row that could fail."""


@dataclass(frozen=True)
class Needed:
    """An expression that is computed of every row that WHERE lets through.

    Attributes:
        when: only where this holds, as the arguments of an aggregate with FILTER.
    """

    expression: exp.Expression
    when: exp.Expression | None = None


@dataclass(frozen=True)
class Apart:
    """Rows that fail without being rows of the join.

    Attributes:
        aliases: of the inputs whose rows, or pairs of rows, they are.
        fails: the condition under which they do, never NULL.
        term: the expression that fails.
        shown: joined rows have the columns of those inputs.
    """

    aliases: frozenset[str]
    fails: exp.Expression
    term: exp.Expression
    shown: bool


@dataclass(frozen=True)
class JoinCheck:
    """What becomes of the pairs of rows of one join.

    Attributes:
        on: the condition of the pairs that join: those that meet ON, and those of which a joined row fails.
        lenient: the condition of those that meet ON, where what fails is NULL.
        pairs: the condition under which a joined row fails; None: none does.
        terms: the terms of ON by which one does.
        apart: rows that fail without joining.
    """

    on: exp.Expression | None = None
    lenient: exp.Expression | None = None
    pairs: exp.Expression | None = None
    terms: tuple[exp.Expression, ...] = ()
    apart: tuple[Apart, ...] = ()


@dataclass(frozen=True)
class RowCheck:
    """What becomes of the rows of a SELECT.

    Attributes:
        sure: the terms of WHERE that cannot fail.
        unsure: those that can, expectations last.
        needed: what is computed of a row that stays.
        joins: of its inputs, in order.
    """

    sure: tuple[exp.Expression, ...]
    unsure: tuple[exp.Expression, ...]
    needed: tuple[Needed, ...]
    joins: tuple[JoinCheck, ...] = ()

    @property
    def lenient(self) -> exp.Expression | None:
        """The condition of the rows that stay where what fails is NULL."""
        return all_of(*self.sure, *map(lenient, self.unsure))

    @property
    def fails(self) -> exp.Expression | None:
        """The condition of the joined rows that fail, never NULL; None: there are none."""
        return self._among_sure(any_of([*(each.pairs for each in self.joins), self._needed_fails()]))

    @property
    def sound(self) -> exp.Expression | None:
        """The condition of the rows that stay where those that fail are left out."""
        wrong = [each for each in (self.fails, self._apart_fails()) if each is not None]
        return all_of(self.lenient, *(exp.Not(this=each) for each in wrong))

    def checked(self, read: Iterable[exp.Expression]) -> exp.Expression | None:
        """The condition of the rows that stay; an error, which names what fails, on a row that does.

        Of a row that fails without joining there is an error where the join keeps it.

        Args:
            read: a column of each joined input. The error reads them, so that an engine has the joined row before it.
        """
        fails = any_of([self.fails, self._apart_fails()])
        if fails is None:
            return self.lenient
        # The error has the terms that are sure in it too: an engine may evaluate it before them.
        error = exp.If(this=fails, true=call(FAIL, self.reason(fails=fails), *read))
        rest = all_of(*map(lenient, self.unsure)) or exp.true()
        return all_of(*self.sure, exp.Paren(this=exp.Case(ifs=[error], default=rest)))

    @property
    def apart(self) -> tuple[Apart, ...]:
        """The rows that fail without joining, of those that WHERE does not leave out by their own columns."""
        found = []
        for each in (each for join in self.joins for each in join.apart):
            found.append(replace(each, fails=truth(all_of(*_over(self.sure, each.aliases), each.fails))))
        return tuple(found)

    def own_terms(self, items: Collection[str]) -> exp.Expression | None:
        """The sure terms that read nothing but inputs, not the plain names of `items` that rows are repeated for."""
        plain = (term for term in self.sure if not any(not c.table and c.name in items for c in columns_in(term)))
        return all_of(*plain)

    @property
    def undecided(self) -> exp.Expression | None:
        """The condition of the rows that fail in a join or in WHERE, whatever else is computed of them."""
        alone = replace(self, needed=())
        return any_of([alone.fails, self._apart_fails()])

    def terms(self) -> list[exp.Expression]:
        """The expressions that can fail on a joined row; expectations are none."""
        can = [each.expression for each in self.needed if can_fail(each.expression)]
        can += [each for each in self.unsure if not is_guard(each)]
        return can + [term for join in self.joins for term in join.terms]

    def reason(self, table: str | None = None, fails: exp.Expression | None = None) -> exp.Expression:
        """Why a joined row fails: the first expectation that it breaks, or else all expressions that can fail.

        Args:
            table: as text of the dead letters of that table; None: as the text of an error.
            fails: the condition of the row, to say by what it fails.
        """
        if table is None:
            terms = [*self.terms(), *(each.term for join in self.joins for each in join.apart if each.shown)]
            said, of = "; ".join(dict.fromkeys(map(in_words, terms))), ""
        else:
            said, of = said_of(self.terms(), table), f" of {table}"
        other = exp.Literal.string(said) if fails is None else words_of(said, fails)
        broken = [
            exp.If(this=failing(guard), true=exp.Literal.string(f"{BREAKS}{name_of(guard)}{of}"))
            for guard in guards_in(all_of(*self.unsure))
        ]
        return exp.Case(ifs=broken, default=other) if broken else other

    def _needed_fails(self) -> exp.Expression | None:
        """The condition that a row fails in WHERE or behind it, of those that the sure terms let through."""
        found = any_of(_fails_where_needed(each) for each in self.needed)
        for term in reversed(self.unsure):
            found = any_of([failing(term), None if found is None else all_of(truth(lenient(term)), found)])
        return found

    def _apart_fails(self) -> exp.Expression | None:
        """The condition that a joined row is one that fails by itself: a join that keeps its left side has such."""
        return self._among_sure(any_of(each.fails for join in self.joins for each in join.apart if each.shown))

    def _among_sure(self, fails: exp.Expression | None) -> exp.Expression | None:
        return None if fails is None else truth(all_of(*self.sure, fails))


def row_check(where: exp.Expression | None, needed: Iterable[Needed], joins: Sequence[JoinCheck] = ()) -> RowCheck:
    """The check of a SELECT's rows.

    Args:
        where: its WHERE, expectations among the terms.
    """
    terms = conjuncts(where)
    unsure = [each for each in terms if can_fail(each)]
    return RowCheck(
        sure=tuple(each for each in terms if not can_fail(each)),
        unsure=(*(each for each in unsure if not is_guard(each)), *filter(is_guard, unsure)),
        needed=tuple(needed),
        joins=tuple(joins),
    )


def join_check(alias: str, join: str, on: exp.Expression | None) -> JoinCheck:
    """The check of the join of an input.

    Args:
        join: as of `jobs.model.stage.JoinType`.
    """
    terms = conjuncts(on)
    if not any(map(can_fail, terms)):
        return JoinCheck(on=on, lenient=on)
    decides = join in _DECIDING
    sure = [each for each in terms if not can_fail(each)]
    equal = [each for each in terms if can_fail(each) and (decides or _is_of_two_sides(each))]
    rest = [each for each in terms if can_fail(each) and not decides and not _is_of_two_sides(each)]
    apart = [
        Apart(aliases, truth(all_of(*_over(sure, aliases), failing(side))), side, not decides or alias not in aliases)
        for term in equal
        for side in (_sides(term) if _is_of_two_sides(term) else [term])
        if can_fail(side)
        for aliases in [_aliases(side) or frozenset({alias})]  # a constant fails for every row of the joined input
    ]
    met = [*sure, *map(lenient, equal)]
    fails = None
    for term in reversed(rest):
        fails = any_of([failing(term), None if fails is None else all_of(truth(lenient(term)), fails)])
    holds = all_of(*map(lenient, rest))
    return JoinCheck(
        on=all_of(*met, any_of([fails, truth(holds)])) if rest else all_of(*met),
        lenient=all_of(*map(lenient, terms)),
        pairs=truth(all_of(*met, fails)) if rest else None,
        terms=tuple(rest),
        apart=tuple(apart),
    )


def truth(condition: exp.Expression | None) -> exp.Expression:
    """The condition with FALSE for NULL; TRUE without one."""
    return exp.true() if condition is None else call("COALESCE", condition, exp.false())


def said_of(terms: Iterable[exp.Expression], table: str) -> str:
    """The reason of a dead letter: the expressions that can fail, as a user would write them."""
    return f"fails in {table}: {'; '.join(dict.fromkeys(map(in_words, terms)))}"


def _fails_where_needed(needed: Needed) -> exp.Expression | None:
    fails = failing(needed.expression)
    if needed.when is None:
        return fails
    return any_of([failing(needed.when), None if fails is None else all_of(truth(lenient(needed.when)), fails)])


def _is_of_two_sides(term: exp.Expression) -> bool:
    """True if a term equates what inputs have with what others have: by such, pairs are found."""
    if not isinstance(term, exp.EQ):
        return False
    left, right = map(_aliases, _sides(term))
    return bool(left) and bool(right) and not left & right


def _sides(equality: exp.Expression) -> list[exp.Expression]:
    sides = [equality.this, equality.args["expression"]]
    return [side for side in sides if isinstance(side, exp.Expression)]


def _over(terms: Iterable[exp.Expression], aliases: frozenset[str]) -> list[exp.Expression]:
    """The terms that read nothing but those inputs."""
    return [each for each in terms if _aliases(each) and _aliases(each) <= aliases]


def _aliases(node: exp.Expression) -> frozenset[str]:
    return frozenset(each.table for each in columns_in(node) if each.table)

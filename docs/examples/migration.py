"""A schema migration whose backfill surprises: the plan is changed while the rest of it goes on.

The backfill finds ten times the rows that it was meant for, and says so. Before a step uses its result, a planner puts
a check of a sample before the step that makes the column mandatory. An index on another table is built meanwhile.
"""

import anyio

import dagrun

NOT_NULL = "ALTER TABLE orders ALTER region SET NOT NULL"
LOG: list[str] = []


@dagrun.tool(effect="effectful", timeout=30)
async def alter(statement: str) -> str:
    """Run one statement on the database."""
    await anyio.sleep(0.05)
    LOG.append(statement)
    return statement


@dagrun.tool(effect="idempotent", timeout=30)
async def backfill(table: str, expected: int, context: dagrun.ToolContext = dagrun.PROVIDED) -> int:
    """Fill the new column, and return the number of rows."""
    rows = 41_000
    if rows > 2 * expected:
        context.surprise(f"{rows:,} rows filled, about {expected:,} were expected")
    return rows


@dagrun.tool(effect="read")
async def check_sample(table: str, rows: int) -> int:
    """Compare a sample of the rows with their source; return the number of differences."""
    return 0


@dagrun.tool(effect="effectful")
async def build_index(table: str) -> str:
    """Build an index, which takes a while."""
    await anyio.sleep(0.4)
    return f"index on {table}"


class Careful:
    """The planner: a rule here, a model as well. It proposes; dagrun checks, and splices."""

    async def revise(self, brief: dagrun.Brief) -> dagrun.Patch:
        print("the planner is asked:", brief.triggers[0].kind, "at", brief.triggers[0].step)
        sample = dagrun.Step(id="sample", tool="check_sample", args={"table": "orders", "rows": "${backfill}"})
        is_right = dagrun.Condition(ref="sample", op="==", value=0)
        strict = dagrun.Step(id="not_null_checked", tool="alter", args={"statement": NOT_NULL}, when=is_right)
        replace = dagrun.Replace(id="not_null", step=strict)
        return dagrun.Patch(edits=[dagrun.Add(step=sample), replace], reason="more rows than planned")


def main() -> None:
    add = alter.options(id="add").step(statement="ALTER TABLE orders ADD region TEXT")
    fill = backfill.options(id="backfill", depends_on=[add]).step(table="orders", expected=4_000)
    strict = alter.options(id="not_null", depends_on=[fill]).step(statement=NOT_NULL)
    index = build_index.options(id="index").step(table="customers")

    result = dagrun.run_sync(dagrun.plan(strict, index), tools=[check_sample], planner=Careful())

    print(result.status, "after", result.replans, "change of the plan:")
    print(*(line[:24] for line in result.plan.diff().lines()), sep="\n")
    print(len(LOG), "statements;", LOG[-1])


if __name__ == "__main__":
    main()

# prints: the planner is asked: surprise at backfill
# prints: succeeded after 1 change of the plan:
# prints: - {"id":"not_null","tool
# prints: + {"id":"sample","tool":
# prints: + {"id":"not_null_checke
# prints: 2 statements; ALTER TABLE orders ALTER region SET NOT NULL

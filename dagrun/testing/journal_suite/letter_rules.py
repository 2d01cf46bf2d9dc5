"""Rules of the journal suite for the inbox, and for several runs in one journal."""

from __future__ import annotations

import anyio
import pytest

from dagrun import Answer
from dagrun.errors import AnswerRefused, JournalFailed, OwnerLost, RunHeld, RunNotFound
from dagrun.extend import AnswerMessage
from dagrun.testing.journal_suite.store import (
    ODD_TEXTS,
    RUN,
    Store,
    shown,
    take_messages,
    until,
    write,
    yield_some,
)


class InboxRules(Store):
    """The inbox of a run, and several runs in one journal."""

    # Letters ----------------------------------------------------------------------------------------------------------

    async def test_a_letter_arrives(self) -> None:
        """Unchanged, also if it was posted before anybody waited for it."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, b'{"answer":"yes"}')
            assert [letter.text for letter in await take_messages(run_log, 1)] == [b'{"answer":"yes"}']

    async def test_each_run_has_an_answer_key_of_its_own(self) -> None:
        """Only a reader of the key can answer for a person; so it must be long, random, and equal for all of them."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            key = run_log.answer_key
            assert len(key) >= 32, f"the answer key {key!r} has less than 128 bits"
            assert await journal.answer_key(RUN) == key
            other = await journal.create("other")
            await other.aclose()
            assert await journal.answer_key("other") == other.answer_key != key
            with pytest.raises(RunNotFound):
                await journal.answer_key("missing-run")
            await run_log.aclose()
            again = await journal.open(RUN)
            await again.aclose()
            assert again.answer_key == await journal.answer_key(RUN) == key

    async def test_the_first_answer_to_a_question_stands_until_it_is_taken(self) -> None:
        """The author of a second answer gets an error; a message without the key blocks no answer."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):

            def letter(said: bool, by: str, question: str = "q", key: str = run_log.answer_key) -> bytes:
                answer = Answer("approve" if said else "deny", by=by)
                return AnswerMessage.of(question, answer, key).model_dump_json().encode()

            await journal.post(RUN, letter(said=True, by="nobody", key="guessed"))
            await journal.post(RUN, letter(said=True, by="ann"))
            with pytest.raises(AnswerRefused, match="it was answered already: approve by ann"):
                await journal.post(RUN, letter(said=False, by="bob"))
            await journal.post(RUN, letter(said=False, by="bob", question="other"))
            for taken in await take_messages(run_log, 3):
                await run_log.discard(taken.id)
            await journal.post(RUN, letter(said=False, by="bob"))

    async def test_of_answers_at_the_same_moment_one_stands(self) -> None:
        """Else two people would both believe that their answer counts."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            refused: list[str] = []

            async def answer(by: str) -> None:
                letter = AnswerMessage.of("q", Answer("approve", by=by), run_log.answer_key)
                try:
                    await journal.post(RUN, letter.model_dump_json().encode())
                except AnswerRefused:
                    refused.append(by)

            async with anyio.create_task_group() as tasks:
                for number in range(8):
                    tasks.start_soon(answer, f"person {number}")
            assert len(refused) == 7

    async def test_letters_arrive_in_the_order_of_posting(self) -> None:
        """The oldest comes first, and each comes once."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            for number in range(10):
                await journal.post(RUN, b"%d" % number)
            letters = await take_messages(run_log, 10)
            assert [letter.text for letter in letters] == [b"%d" % number for number in range(10)]
            assert len({letter.id for letter in letters}) == 10

    async def test_who_waits_for_letters_is_woken(self) -> None:
        """For the first message, and for each later one."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            got: list[bytes] = []

            async def listen() -> None:
                async for letter in run_log.inbox():
                    got.append(letter.text)
                    await run_log.discard(letter.id)
                    if len(got) == 5:
                        return

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(listen)
                for number in range(5):
                    await yield_some()
                    await journal.post(RUN, b"%d" % number)
                    await until(lambda count=number + 1: len(got) == count)  # type: ignore[misc]
            assert got == [b"%d" % number for number in range(5)]

    async def test_a_letter_that_was_not_discarded_comes_again(self) -> None:
        """To the next owner: the events that followed from it may not have been durable."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, b"1")
            await journal.post(RUN, b"2")
            letters = await take_messages(run_log, 2)
            await run_log.discard(letters[0].id)
            await run_log.aclose()
            again = await journal.open(RUN)
            assert [letter.text for letter in await take_messages(again, 1)] == [b"2"]
            await again.aclose()

    async def test_a_letter_can_be_posted_to_a_run_that_nobody_holds(self) -> None:
        """A person may answer a suspended run; the next owner gets the message."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await run_log.aclose()
            await journal.post(RUN, b"1")
            again = await journal.open(RUN)
            assert [letter.text for letter in await take_messages(again, 1)] == [b"1"]
            await again.aclose()

    async def test_discarding_what_is_not_there_is_no_error(self) -> None:
        """A crash may come after a message was discarded, and the next owner discards it again."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, b"1")
            (letter,) = await take_messages(run_log, 1)
            await run_log.discard(letter.id)
            await run_log.discard(letter.id)
            await run_log.discard("../journal.db")
            await write(run_log, b"1")
            assert len(await journal.read(RUN)) == 1

    async def test_letters_are_of_one_run(self) -> None:
        """Another run does not get them."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            other = await journal.create("other")
            await journal.post("other", b"for the other")
            await journal.post(RUN, b"for this one")
            assert [letter.text for letter in await take_messages(run_log, 1)] == [b"for this one"]
            assert [letter.text for letter in await take_messages(other, 1)] == [b"for the other"]
            await other.aclose()

    async def test_a_letter_of_64_kib_arrives_and_a_longer_one_is_refused(self) -> None:
        """An answer is not a document, and a sender must not be able to fill the memory."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, b"x" * 65536)
            with pytest.raises(JournalFailed, match="65536"):
                await journal.post(RUN, b"x" * 65537)
            assert [len(letter.text) for letter in await take_messages(run_log, 1)] == [65536]

    @pytest.mark.parametrize("text", ODD_TEXTS.values(), ids=ODD_TEXTS.keys())
    async def test_no_letter_is_changed(self, text: bytes) -> None:
        """It arrives byte for byte."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, text)
            assert [letter.text for letter in await take_messages(run_log, 1)] == [text]

    async def test_the_backlog_is_what_lies_there(self) -> None:
        """It is returned without waiting, and `inbox` continues after it."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            assert await run_log.backlog() == []
            for number in range(3):
                await journal.post(RUN, b"%d" % number)
            assert [letter.text for letter in await run_log.backlog()] == [b"0", b"1", b"2"]
            assert await run_log.backlog() == []
            await journal.post(RUN, b"3")
            assert [letter.text for letter in await take_messages(run_log, 1)] == [b"3"]
            assert await run_log.backlog() == []

    async def test_the_backlog_of_a_new_owner_has_what_was_not_discarded(self) -> None:
        """An answer that was posted while nobody held the run counts before the run does anything."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            await journal.post(RUN, b"1")
            await journal.post(RUN, b"2")
            await run_log.discard((await run_log.backlog())[0].id)
            await run_log.aclose()
            again = await journal.open(RUN)
            assert [letter.text for letter in await again.backlog()] == [b"2"]
            await again.aclose()

    async def test_waiting_for_letters_can_be_cancelled(self) -> None:
        """It can be started again, and no letter is lost."""
        self.need_inbox()
        async with self.run_log() as (journal, run_log):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(take_messages, run_log, 1)
                await yield_some()
                tasks.cancel_scope.cancel()
            await journal.post(RUN, b"1")
            assert [letter.text for letter in await take_messages(run_log, 1)] == [b"1"]

    # Many runs, and none ----------------------------------------------------------------------------------------------

    async def test_many_runs_are_written_at_once(self) -> None:
        """Each run has its own records, numbers and chain."""
        async with self.journal() as journal:

            async def live(number: int) -> None:
                run_log = await journal.create(f"run-{number}")
                try:
                    for count in range(5):
                        await write(run_log, b'"%d of %d"' % (count, number))
                finally:
                    await run_log.aclose()

            async with anyio.create_task_group() as tasks:
                for number in range(40):
                    tasks.start_soon(live, number)
            for number in range(40):
                texts = [line.text for line in await journal.read(f"run-{number}")]
                assert texts == [b'"%d of %d"' % (count, number) for count in range(5)]
            assert len(await journal.runs()) == 40

    async def test_the_trouble_of_one_run_is_not_that_of_another(self) -> None:
        """One run is stolen, and the other continues."""
        async with self.run_log() as (journal, run_log):
            other = await journal.create("other")
            thief = await journal.open(RUN, steal=True)
            run_log.append(b"late")
            with pytest.raises(OwnerLost):
                await run_log.durable()
            await write(other, b"1")
            await other.aclose()
            await thief.aclose()
            assert shown(await journal.read("other")) == [(1, b"1")]

    async def test_a_deleted_run_is_gone(self) -> None:
        """Its records and its inbox are gone, too, and its name is free."""
        async with self.run_log() as (journal, run_log):
            await write(run_log, b"1")
            if self.has_letters:
                await journal.post(RUN, b"1")
            await run_log.aclose()
            await journal.delete(RUN)
            assert await journal.runs() == []
            with pytest.raises(RunNotFound):
                await journal.read(RUN)
            again = await journal.create(RUN)
            assert list(again.lines) == []
            if self.has_letters:
                await journal.post(RUN, b"new")
                assert [letter.text for letter in await take_messages(again, 1)] == [b"new"]
            await again.aclose()

    async def test_a_run_that_is_held_is_not_deleted(self) -> None:
        """Its owner continues to write."""
        async with self.run_log() as (journal, run_log):
            with pytest.raises(RunHeld, match=RUN):
                await journal.delete(RUN)
            await write(run_log, b"1")
            assert len(await journal.read(RUN)) == 1

    async def test_deleting_a_run_leaves_the_others(self) -> None:
        """Even if their names begin alike."""
        async with self.journal() as journal:
            for run_id in ("run", "run-1", "run-10", "ru"):
                run_log = await journal.create(run_id)
                await write(run_log, b"1")
                await run_log.aclose()
            await journal.delete("run-1")
            assert [held.run_id for held in await journal.runs()] == ["ru", "run", "run-10"]
            assert shown(await journal.read("run-10")) == [(1, b"1")]

    async def test_files_of_a_run_have_a_folder_of_their_own(self) -> None:
        """If the journal keeps files: the folder exists, and is deleted with the run."""
        async with self.run_log() as (journal, run_log):
            if run_log.artifacts is None:
                return
            (run_log.artifacts / "report.csv").write_bytes(b"a,b\n")
            folder = run_log.artifacts
            await run_log.aclose()
            await journal.delete(RUN)
            assert not folder.exists()

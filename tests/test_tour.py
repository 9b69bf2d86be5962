import pytest

from kvcore import tour

WORDS = [f"word{number}" for number in range(1, tour.STEPS + 1)]


def test_24_steps_run_300_pieces_without_notes_and_24_with():
    last = tour.pieces_run().set_index(["step", "way"]).total
    assert last[tour.STEPS, tour.WITHOUT] == sum(range(1, 25)) == 300
    assert last[tour.STEPS, tour.WITH] == 24


@pytest.mark.parametrize("step", [1, 2, 12, 24])
def test_a_step_runs_everything_or_one_piece(step):
    frame = tour.one_step(step, WORDS)
    run = frame[frame.what == tour.RUN].groupby("way").size()
    assert run[tour.WITHOUT] == step
    assert run[tour.WITH] == 1
    newest = frame[(frame.way == tour.WITH) & (frame.what == tour.RUN)]
    assert newest.word.tolist() == [WORDS[step - 1]]


@pytest.mark.parametrize("step", [0, 25])
def test_there_is_no_step_without_a_word(step):
    with pytest.raises(ValueError, match="24 steps"):
        tour.one_step(step, WORDS)


def test_keys_and_values_stay_and_queries_go():
    frame = tour.cards(5, WORDS)
    states = frame.groupby(["part", "state"]).size()
    assert states[tour.KEY, tour.FILED] == 5
    assert states[tour.VALUE, tour.FILED] == 5
    assert states[tour.QUERY, tour.USED_ONCE] == 1
    assert states[tour.QUERY, tour.GONE] == 4


def test_fixes_stack():
    fixes = [tour.Fix("share", 0.25, "GQA"), tour.Fix("round", 0.5, "8 bits")]
    frame = tour.after_fixes(1000, fixes)
    assert frame.num_bytes.tolist() == [1000, 250, 125]


def test_the_drawers_are_those_of_the_reference():
    kib = tour.bytes_per_token().set_index("model").kib
    assert kib["OPT-13B"] == 800
    assert kib["GPT-2"] * 1024 == 36_864
    assert kib["Llama-3.1-8B"] * 1024 == 131_072
    assert kib["Qwen2.5-7B-Instruct"] * 1024 == 2 * 28 * 4 * 128 * 2


def test_all_five_fixes_together():
    frame = tour.after_fixes(tour.before_fixes(), tour.fixes())
    held = 4 * 131_072 * 32_768 / 0.204
    assert frame.num_bytes.iloc[0] == round(held)
    kept = 0.25 * (4_096 / 32_768) * 0.5 * (0.204 / 0.963) * ((16_384 + 2_048) / 32_768)
    assert frame.num_bytes.iloc[-1] == pytest.approx(held * kept, rel=1e-6)


def test_a_chat_sends_everything_again():
    frame = tour.chat(3, system=1_000, question=100, reply=200)
    sent = frame.groupby("turn").tokens.sum()
    assert sent.tolist() == [1_100, 1_400, 1_700]
    new = frame[frame.what == tour.NEW].tokens
    assert new.tolist() == [1_100, 300, 300]

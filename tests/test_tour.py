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
    states = frame.groupby(["card", "state"]).size()
    assert states[tour.KEY, tour.FILED] == 5
    assert states[tour.VALUE, tour.FILED] == 5
    assert states[tour.QUERY, tour.USED_ONCE] == 1
    assert states[tour.QUERY, tour.GONE] == 4


def test_fixes_stack():
    fixes = [tour.Fix("share", 0.25, "GQA"), tour.Fix("round", 0.5, "8 bits")]
    frame = tour.after_fixes(1000, fixes)
    assert frame.num_bytes.tolist() == [1000, 250, 125]

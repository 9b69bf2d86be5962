import pytest

from kvcore import recordings
from kvcore.decoding.known import ORIGINS

NAMES = sorted(path.stem for path in recordings.FOLDER.glob("*.json"))


def test_a_recording_comes_back_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr(recordings, "FOLDER", tmp_path)
    label = recordings.label(1, "random weights")
    recordings.write("demo", label, {"ms": [1.5, 2.5], "text": ["é", "\n"]})
    back = recordings.read("demo")
    assert back.label == label
    assert back.data == {"ms": [1.5, 2.5], "text": ["é", "\n"]}
    assert "1 thread," in str(back.label)
    assert "random weights" in str(back.label)


@pytest.mark.parametrize("name", NAMES)
def test_every_recording_says_how_it_was_made(name):
    label = recordings.read(name).label
    assert label.processor != "unknown processor"
    assert label.threads >= 1
    assert label.weights
    assert label.command == "make record"
    assert len(label.date) == len("2026-01-01")


@pytest.mark.parametrize("name", NAMES)
def test_the_weights_of_a_recording_are_named_in_plain_words(name):
    weights = recordings.read(name).label.weights
    assert "SmolLM2-135M-Instruct" in weights
    assert not any(f"({source})" in weights for source in ORIGINS)


@pytest.mark.parametrize("name", NAMES)
def test_recordings_stay_small(name):
    assert (recordings.FOLDER / f"{name}.json").stat().st_size < 300_000

from kvcore.quantity import Kind
from kvcore.whiteboard import QUESTIONS

# The case most introductions work out: 32 layers, 8 KV heads of 128, 8,000 tokens, 16 bits.
RIGHT = {"estimate": 1_048_576_000, "users": 61, "steps": 300, "sharing": 4}


def test_right_answers():
    asked = {question.key: question for question in QUESTIONS if question.answer}
    assert {key: question.answer.values[0] for key, question in asked.items()} == RIGHT
    assert asked["estimate"].answer.kind is Kind.BYTES
    for question in asked.values():
        assert question.arithmetic

"""How a system prompt, a question and perhaps the time become one text for a model."""

from typing import Any

SYSTEM = (
    "You are a patient assistant of a small library. Answer in two or three plain sentences. "
    "Never invent a title; if you are not sure, say so and name the shelf where to look. Novels "
    "stand on the ground floor by author, travel and history on the first floor by country, "
    "children's books in the round room beside the garden. Newspapers of the last ten years lie in "
    "the reading room and may not be taken home; older ones are kept on film, and the desk shows "
    "how to use the reader. The library is open from nine to six on weekdays and from ten to two "
    "on Saturdays. A reader's card is free for everybody who lives in the town and costs ten "
    "pounds a year for everybody else. Books may be kept for four weeks and renewed twice, unless "
    "another reader is waiting for them."
)
QUESTION = "Explain in plain words why a library lends books."


def compose(
    model: Any,
    system: str,
    question: str,
    time_first: str | None = None,
    time_last: str | None = None,
) -> str:
    """One prompt: the system prompt first, so that requests that share it begin alike.

    `time_first` puts the time before everything, `time_last` after it. Models trained to chat get
    the markup of their turns (ChatML, where their template names it), the others plain lines.
    """
    opening = f"{time_first}: " if time_first else ""
    closing = f" (Asked at {time_last}.)" if time_last else ""
    if speaks_chatml(model):
        return (
            f"<|im_start|>system\n{opening}{system}<|im_end|>\n"
            f"<|im_start|>user\n{question}{closing}<|im_end|>\n<|im_start|>assistant\n"
        )
    return f"{opening}{system}\n\nQuestion: {question}{closing}\nAnswer:"


def speaks_chatml(model: Any) -> bool:
    template = getattr(model.tokenizer, "chat_template", None) or ""
    return "<|im_start|>" in template

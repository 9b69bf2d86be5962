"""What prompt caching does to the monthly bill."""

from pages.common.entry import through_app

through_app()

import streamlit as st

from kvcore import units
from kvcore.charts import prompt_caching as charts
from kvcore.costs.doubts import Band, uncertainty_band
from kvcore.costs.estimate import Estimate, ModelEstimate, estimate
from kvcore.costs.pictures import bill_table
from kvcore.costs.report import summary_html, summary_markdown
from pages.caching import breaks, details, questions, usage
from pages.common.draw import draw
from pages.common.page import header
from pages.common.text import as_text

TABS = (
    "How the saving moves",
    "How sure this is",
    "A conversation",
    "Models and prices",
    "Losses and fixes",
    "Your own usage",
    "What breaks my cache?",
    "Arithmetic",
    "Sources and export",
)


def answer(found: Estimate, main: ModelEstimate, band: Band | None) -> None:
    """The sentence, four numbers, and the page to forward."""
    st.subheader(as_text(main.sentence, 400), anchor=False)
    row = st.container(horizontal=True)
    row.metric(
        "Without caching, a month",
        units.dollars(main.without.total),
        help="Every prompt token at the price of fresh input, and the answers.",
    )
    row.metric(
        "With the cheapest lifetime" if main.saving >= 0 else "With the least bad lifetime",
        units.dollars(main.best.bill.total) if main.best else "no cache sold",
        help="The cheapest of all lifetimes this provider sells, writes and storage included.",
    )
    row.metric(
        "Saving, likely range",
        f"{units.dollars(band.low)} to {units.dollars(band.high)}" if band else "none",
        help="Traffic, lengths and unsure provider facts varied one by one, added in quadrature. "
        + (band.sentence if band else ""),
    )
    share = float(main.untouchable / main.without.total) if main.without.total else 0.0
    row.metric(
        "Beyond any cache",
        units.percent(share),
        help="Answers, and what changes in every request: caching cannot touch this part.",
    )
    details.age(main)
    files = st.container(horizontal=True)
    files.download_button(
        "Summary (HTML)",
        lambda: summary_html(found, about=main),
        file_name="prompt_caching.html",
        mime="text/html",
        on_click="ignore",
        key="prompt_caching_summary_html",
        help="One page to forward: the answer, the bill, the lifetimes, losses and fixes.",
    )
    files.download_button(
        "Summary (Markdown)",
        lambda: summary_markdown(found, about=main),
        file_name="prompt_caching.md",
        mime="text/markdown",
        on_click="ignore",
        key="prompt_caching_summary_md",
    )


def picture(main: ModelEstimate) -> None:
    with_cache = main.best.bill.total if main.best else main.without.total
    draw(
        charts.bill,
        bill_table(main),
        alt=f"The bill a month by token class: {units.dollars(main.without.total)} without "
        f"caching, {units.dollars(with_cache)} with it.",
    )
    for note in details.cliffs(main):
        st.caption(as_text(note, 400))


header(
    "Prompt caching bill",
    "Providers keep the start of your prompts for a while and charge less for it when it comes "
    "again. Sometimes that saves most of a bill, sometimes it costs more.",
)
questions.check_link()
top = st.container()
questions.ask_preset()
chosen, compared = questions.ask_models()
left, right = st.columns([5, 6], gap="large")
with left:
    given = questions.ask_traffic()
    terms = questions.ask_terms()
asked = questions.answers(chosen, compared, given, terms)

found = estimate(asked.choices, asked.workload, at=asked.day) if asked else Estimate(())
main = found.of(asked.main) if asked else None
band = uncertainty_band(main) if main else None
if main is not None:
    with top:
        answer(found, main, band)
    with right:
        picture(main)
        details.rules_of_thumb(found, main)
        details.not_priced(found)
elif asked is not None:
    with top:
        details.not_priced(found)

tabs = dict(zip(TABS, st.tabs(TABS, key="prompt_caching_tab", on_change="rerun"), strict=True))
DRAWN = {
    "A conversation": details.conversation,
    "Models and prices": details.prices,
    "Losses and fixes": details.losses_and_fixes,
    "Arithmetic": details.arithmetic,
    "Sources and export": details.sources_and_export,
}
for name, tab in tabs.items():
    if not tab.open:
        continue
    with tab:
        if name == "Your own usage":
            usage.show(asked)
        elif name == "What breaks my cache?":
            breaks.show(asked)
        elif main is None:
            st.markdown("There is no estimate to show until the questions above have an answer.")
        elif name == "How the saving moves":
            details.moves(main)
        elif name == "How sure this is":
            details.how_sure(band)
        else:
            DRAWN[name](found, main, asked)

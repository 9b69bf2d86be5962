"""Each protection taken away, and the test that has to notice.

A `Break` is one edit of the source that undoes a mend. `make prove` applies each to a copy of the
project and runs its test there, which must fail.
"""

from __future__ import annotations

from dataclasses import dataclass

FAULT, ATTACK = "fault", "attack"


@dataclass(frozen=True)
class Break:
    """kind: FAULT or ATTACK. what: the threat, in words. old → new in `file`; `old` stands there
    once. test: the node id of pytest that fails with it."""

    kind: str
    what: str
    file: str
    old: str
    new: str
    test: str

    def apply(self, text: str) -> str:
        """Raises ValueError where `old` does not stand exactly once."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file} does not hold this once: {self.old!r}")
        return text.replace(self.old, self.new)


DECODING = "tests/decoding/test_faults.py::"
JOURNEY = "tests/journeys/test_faults.py::"
JOBS = "tests/test_faults.py::"
HUB = "tests/test_hub.py::"
UPLOADS = "tests/security/test_uploads.py::"
SERVER = "tests/security/test_server.py::"
TEXT = "tests/security/test_text.py::"
ADDRESSES = "tests/serving/test_addresses.py::"
CLIENT = "tests/serving/test_client.py::"

BREAKS = (
    Break(
        FAULT,
        "the hub dies while it is asked or sends",
        "kvcore/decoding/load.py",
        "        except hub.HubError as error:\n            if error.kind",
        "        except ZeroDivisionError as error:\n            if error.kind",
        DECODING + "test_the_hub_dies_in_each_phase_and_comes_back",
    ),
    Break(
        FAULT,
        "a download that broke off leaves half a file",
        "kvcore/decoding/hub_worker.py",
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))",
        "signal.signal(signal.SIGTERM, signal.SIG_DFL)",
        "tests/decoding/test_hub.py::test_a_download_can_be_stopped",
    ),
    Break(
        FAULT,
        "a hub that says nothing holds the visitor up",
        "kvcore/decoding/hub.py",
        "        error = outcome.get(timeout=seconds)",
        "        error = outcome.get(timeout=60 * seconds)",
        "tests/decoding/test_hub.py::test_a_hub_that_says_nothing_is_given_up_in_time",
    ),
    Break(
        FAULT,
        "the disk is full in the model cache",
        "kvcore/decoding/hub_worker.py",
        "        if error.errno in STORAGE_ERRORS:",
        "        if error.errno is None:",
        DECODING + "test_a_full_disk_is_named_and_leaves_nothing",
    ),
    Break(
        FAULT,
        "a half-written model file ends the load",
        "kvcore/decoding/load.py",
        "            except LoadError as error:\n                self.cache_is_damaged = True",
        "            except OSError as error:\n                self.cache_is_damaged = True",
        DECODING + "test_any_half_written_file_of_the_cache_is_fetched_again",
    ),
    Break(
        FAULT,
        "a model file whose bytes were changed is used",
        "kvcore/decoding/load.py",
        "                hub.verify(folder)\n",
        "",
        "tests/decoding/test_hub.py::test_a_damaged_file_in_the_cache_is_downloaded_again",
    ),
    Break(
        FAULT,
        "the browser closes during a run",
        "pages/common/jobs.py",
        '@st.cache_resource(scope="session", on_release=Slot.stop, show_spinner=False)',
        '@st.cache_resource(scope="session", show_spinner=False)',
        JOURNEY + "test_a_browser_that_closes_during_a_run_frees_the_place",
    ),
    Break(
        FAULT,
        "a rerun during a run ends it",
        "pages/common/jobs.py",
        '@st.cache_resource(scope="session", on_release=Slot.stop, show_spinner=False)\n',
        "",
        JOURNEY + "test_a_rerun_during_a_run_keeps_it",
    ),
    Break(
        FAULT,
        "two tabs of one user measure at once",
        "kvcore/jobs.py",
        "                self._changed.wait_for(lambda: self._line[0] is ticket or given_up())\n",
        "                pass\n",
        JOURNEY + "test_a_browser_that_closes_during_a_run_frees_the_place",
    ),
    Break(
        FAULT,
        "first visitors of a cold server import at once",
        "pages/common/first.py",
        "    with _lock:\n        yield\n",
        "    yield\n",
        JOURNEY + "test_the_first_visitors_of_a_cold_server_may_all_come_at_once",
    ),
    Break(
        FAULT,
        "a first visit runs its page past app.py",
        "pages/common/entry.py",
        "        PagesManager.uses_pages_directory = False\n        st.rerun()\n",
        "        pass\n",
        "tests/pages/test_every_page.py::test_every_visit_of_a_page_is_led_by_app_py",
    ),
    Break(
        FAULT,
        "a worker thread raises",
        "kvcore/jobs.py",
        "                self._line.remove(ticket)\n",
        "                pass\n",
        JOBS + "test_a_worker_that_raises_frees_the_place",
    ),
    Break(
        FAULT,
        "the clock jumps",
        "kvcore/jobs.py",
        "        return (self.ended_at or time.monotonic()) - self.started_at",
        "        return (self.ended_at or time.time()) - self.started_at",
        JOBS + "test_a_jumping_clock_changes_no_duration",
    ),
    Break(
        FAULT,
        "a model is loaded that does not fit the memory",
        "kvcore/decoding/memory.py",
        "    if available is not None and needed > available:",
        "    if False:",
        DECODING + "test_memory_is_asked_before_anything_is_fetched",
    ),
    Break(
        FAULT,
        "memory runs out while a model is loaded",
        "kvcore/decoding/shelf.py",
        "        finally:\n            self._loading.release()",
        "        except LoadError:\n            self._loading.release()\n            raise\n"
        "        else:\n            self._loading.release()",
        DECODING + "test_running_out_of_memory_while_loading_frees_the_shelf_and_the_place",
    ),
    Break(
        FAULT,
        "one run keeps the place for ever",
        "kvcore/jobs.py",
        "                if self.seconds > self.max_seconds:",
        "                if self.seconds > 100 + self.max_seconds:",
        JOBS + "test_a_run_past_its_time_ends_and_keeps_what_it_has",
    ),
    Break(
        ATTACK,
        "an address instead of a repository id",
        "kvcore/config_json/hub.py",
        '    if not _REPOSITORY.match(found) or ".." in found or "--" in found:',
        "    if not found:",
        HUB + "test_what_is_no_repository_is_never_fetched",
    ),
    Break(
        ATTACK,
        "a hub that redirects a config elsewhere",
        "kvcore/config_json/hub.py",
        "        if urlsplit(target)[:2] != self.origin:",
        "        if False:",
        HUB + "test_everything_else_is_one_sentence",
    ),
    Break(
        ATTACK,
        "a hub that redirects weights elsewhere",
        "kvcore/decoding/hub_worker.py",
        "    raise ElsewhereError(url.host)",
        "    return",
        DECODING + "test_a_download_sent_to_another_host_is_not_followed",
    ),
    Break(
        ATTACK,
        "a private address as a serving engine",
        "kvcore/serving/addresses.py",
        "        if any(entry.holds(address, port) for entry in self.entries):",
        "        if True:",
        ADDRESSES + "test_private_addresses_need_to_be_listed",
    ),
    Break(
        ATTACK,
        "a link-local address, where clouds keep credentials",
        "kvcore/serving/addresses.py",
        "        address.is_link_local\n        or address.is_multicast",
        "        address.is_multicast",
        ADDRESSES + "test_link_local_and_reserved_are_never_called",
    ),
    Break(
        ATTACK,
        "an IPv4 address hidden in an IPv6 one",
        "kvcore/serving/addresses.py",
        "        inner = embedded(address)\n",
        "        inner = None\n",
        ADDRESSES + "test_ipv4_inside_ipv6_is_refused",
    ),
    Break(
        ATTACK,
        "a name that resolves anew between check and call",
        "kvcore/serving/transport.py",
        "        request.url = request.url.copy_with(host=target.address, port=target.port)\n",
        "",
        CLIENT + "test_the_connection_goes_to_the_address_that_was_checked",
    ),
    Break(
        ATTACK,
        "a serving engine that redirects",
        "kvcore/serving/client.py",
        "follow_redirects=False",
        "follow_redirects=True",
        CLIENT + "test_redirects_are_not_followed",
    ),
    Break(
        ATTACK,
        "weights that are a pickle, or code of a repository",
        "kvcore/decoding/tensors.py",
        "import json\n",
        "import json\nimport pickle\n",
        "tests/security/test_code.py::test_nothing_runs_what_it_reads",
    ),
    Break(
        ATTACK,
        "a zip or gzip bomb as usage",
        "kvcore/costs/exports/__init__.py",
        '    b"PK\\x03\\x04": ',
        '    b"ZZ\\x03\\x04": ',
        UPLOADS + "test_archives_of_usage_are_not_unpacked",
    ),
    Break(
        ATTACK,
        "a gzip bomb as a trace",
        "kvcore/paging/traces.py",
        "max_bytes: int = MAX_BYTES, ",
        "max_bytes: int = 100 * MAX_BYTES, ",
        UPLOADS + "test_a_trace_that_bursts_is_refused",
    ),
    Break(
        ATTACK,
        "a link that bursts when it is unpacked",
        "kvcore/config_json/packed.py",
        "reader.decompress(squeezed, LARGEST_UNPACKED)",
        "reader.decompress(squeezed)",
        UPLOADS + "test_a_link_that_bursts_is_refused",
    ),
    Break(
        ATTACK,
        "deep JSON as a config",
        "kvcore/config_json/identify.py",
        "        if depth > DEEPEST:",
        "        if False:",
        UPLOADS + "test_deep_json_is_refused_as_a_config",
    ),
    Break(
        ATTACK,
        "deep JSON as usage",
        "kvcore/costs/exports/text.py",
        "        return json.loads(text)\n    except (ValueError, RecursionError):",
        "        return json.loads(text)\n    except UnicodeError:",
        UPLOADS + "test_deep_json_is_refused_as_usage_and_good_lines_still_count",
    ),
    Break(
        ATTACK,
        "deep JSON as a trace",
        "kvcore/paging/traces.py",
        "    except (ValueError, RecursionError):",
        "    except UnicodeError:",
        UPLOADS + "test_deep_json_is_refused_as_a_trace",
    ),
    Break(
        ATTACK,
        "a log without end",
        "kvcore/engines/logs/__init__.py",
        "    if len(text) > MAX_CHARACTERS:",
        "    if False:",
        UPLOADS + "test_a_log_without_end_is_refused",
    ),
    Break(
        ATTACK,
        "HTML, Markdown and links in what is typed",
        "pages/common/text.py",
        '    return Escaped(_ADDRESSES.sub(rf"\\1{_JOINER}", _MARKUP.sub(r"\\\\\\g<0>", line)))',
        "    return Escaped(line)",
        TEXT + "test_hostile_configs",
    ),
    Break(
        ATTACK,
        "the same in the parameters of a link",
        "pages/common/query.py",
        "“{as_text(value, 60)}”",
        "“{value}”",
        TEXT + "test_hostile_text_in_every_parameter_of_a_link",
    ),
    Break(
        ATTACK,
        "Vega expressions: typed text inside the specification of a chart",
        "pages/common/draw.py",
        '    drawn = {**drawn, "config"',
        '    drawn = {**drawn, "title": str(table.to_pylist()), "config"',
        TEXT + "test_hostile_names_of_a_config_that_can_be_sized",
    ),
    Break(
        ATTACK,
        "formulas in exported cells",
        "kvcore/export.py",
        "    if isinstance(cell, str) and cell.startswith(FORMULA_STARTS):",
        "    if False:",
        "tests/security/test_exports.py::test_a_formula_in_a_cell_becomes_text",
    ),
    Break(
        ATTACK,
        "another site opens a session",
        ".streamlit/config.toml",
        "enableXsrfProtection = true\nenableCORS = true",
        "enableXsrfProtection = false\nenableCORS = false",
        SERVER + "test_another_site_cannot_open_a_session",
    ),
    Break(
        ATTACK,
        "an upload without the token",
        ".streamlit/config.toml",
        "enableXsrfProtection = true",
        "enableXsrfProtection = false",
        SERVER + "test_an_upload_without_the_token_is_refused",
    ),
    Break(
        ATTACK,
        "a fault that shows a secret to a visitor",
        ".streamlit/config.toml",
        'showErrorDetails = "type"',
        'showErrorDetails = "full"',
        SERVER + "test_a_fault_shows_no_traceback_and_no_message",
    ),
    Break(
        ATTACK,
        "a server that echoes the key it was given",
        "kvcore/serving/client.py",
        "        if not words or self._key.shows_in(words):",
        "        if not words:",
        CLIENT + "test_a_server_that_echoes_the_key_is_not_quoted",
    ),
)

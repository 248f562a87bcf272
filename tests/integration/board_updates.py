"""New data and lost answers leave what a reader of the board has chosen and reads.

Parts of board_page.py, which has the browser, the board and its runs.
"""
import json
import re
import shutil

from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By


def look_at_updates(page, url, runs):
    reading_goes_on(page, url)
    loads_follow(page, url)
    parts_stay(page, url)
    zooms_do_not_overtake(page, url)
    nodes_stay(page, url)
    others_are_updated(page, url)
    silence_is_told(page, url)
    problems_are_told(page, url)
    steps_taken_back_go(page, url, runs)
    loads_of_another_run_go(page, url, runs)
    runs_go(page, url, runs)


def open_run(page, url, run):
    page.open(f"{url}?run={run}")
    page.until(lambda: page.number("loss", "loss") is not None, f"a loss of {run}")


def reading_goes_on(page, url):
    """Bins that widen and a graph that is made anew keep the step that is read."""
    open_run(page, url, "narrow")
    read = page.script("""
        charts[0].select(21);
        const series = state.series.get("narrow");
        series.width = 2;
        for (const lists of series.columns.values()) {
          for (const part of ["mean", "min", "max"]) lists[part] = lists[part].filter((value, at) => at % 2 === 0);
        }
        drawCharts();
        const read = [charts[0].box.getAttribute("aria-valuenow")];
        charts[0].pressed(new KeyboardEvent("keydown", { key: "ArrowRight" }));
        return [...read, charts[0].box.getAttribute("aria-valuenow")];""")
    assert read == ["20", "22"], read
    open_run(page, url, "experts")
    words = page.script("""
        charts[0].point(15);
        const graph = charts[0].graph;
        for (const part of ["mean", "min", "max"]) {
          const list = state.series.get("experts").columns.get("loss")[part];
          list.push(...Array(20).fill(list[list.length - 1]));
        }
        drawCharts();
        return [graph !== charts[0].graph, byId("loss-values").textContent];""")
    assert words[0], "a curve of so many points is drawn without them, by another graph"
    assert words[1].startswith("step 15:"), words


def loads_follow(page, url):
    """The map of loads shows the step that was chosen or read last, and knows of new steps."""
    open_run(page, url, "experts")
    page.until(lambda: page.text("loads-at") == "step 30, the newest", "the newest loads")
    page.script("expertCharts[0].point(15); expertCharts[3].select(21); drawCharts();")
    page.until(lambda: page.text("loads-at") == "step 21", "the step that was read last")
    page.script("expertMap.choose(9); drawCharts(); expertMap.update('experts', true);")
    page.until(lambda: page.text("loads-at") == "step 10", "the step that was chosen last")
    page.script("drawCharts();")
    assert page.text("loads-at") == "step 10", page.text("loads-at")
    page.script("expertMap.source.steps = expertMap.source.steps.slice(0, 20); expertMap.update('experts', true);")
    page.until(lambda: page.script("return expertMap.source.steps.length;") == 30, "the steps since")
    page.script("expertMap.source.steps = expertMap.source.steps.slice(0, 20); expertCharts[3].select(29);")
    page.until(lambda: page.text("loads-at") == "step 29", "a step that is read before it is known")


def parts_stay(page, url):
    """A part that was moved to, and one of the values, are shown until they are left."""
    open_run(page, url, "narrow")
    shown = page.script("""
        charts[0].graph.updateOptions({ dateWindow: [40, 60] });  // as dragging with Shift does, or a finger
        document.dispatchEvent(new MouseEvent("mouseup"));
        drawCharts();
        return charts.map((chart) => chart.graph.xAxisRange());""")
    assert shown == [[40, 60]] * 4, shown
    page.driver.find_element(By.ID, "zoom-out").click()
    page.until(lambda: page.script("return charts.every((chart) => !chart.graph.isZoomed());"), "the whole run")
    box = page.driver.find_element(By.ID, "grad_norm")
    page.script("arguments[0].scrollIntoView({ block: 'center' });", box)
    ActionChains(page.driver).move_to_element(box).click_and_hold().move_by_offset(0, 40).release().perform()
    values = page.script("drawCharts(); const { graph } = charts[1]; return [graph.isZoomed('y'), graph.yAxisRange()];")
    assert values[0], values
    assert page.script("drawCharts(); return charts[1].graph.yAxisRange();") == values[1]
    page.driver.find_element(By.ID, "zoom-out").click()
    page.until(lambda: page.script("drawCharts(); return !charts[1].graph.isZoomed();"), "all values")
    # Another metric, or another scale, has other values.
    ranges = page.script("""
        charts[0].graph.updateOptions({ axes: { y: { valueRange: [0, 2] } } });
        byId("log-y").click();
        const loss = charts[0].graph.yAxisRange();
        byId("log-y").click();
        const select = byId("other");
        select.append(new Option("a", "lr"), new Option("b", "grad_norm"));
        const choose = (name) => { otherChart.quantities = [name]; otherChart.draw(shownSeries(), options(otherChart)); };
        choose("lr");
        otherChart.graph.updateOptions({ axes: { y: { valueRange: [0, 2] } } });
        choose("grad_norm");
        return [loss, otherChart.graph.isZoomed("y")];""")
    assert ranges[0][0] > 0 and not ranges[1], ranges
    # A part that begins before the first step, on logarithmic steps.
    shown = page.script("""
        state.range = [-5, 50];
        byId("log-x").click();
        const { graph } = charts[0];
        const shown = [...graph.xAxisRange(), graph.toPercentXCoord(1), graph.toPercentXCoord(50)];
        byId("log-x").click();
        zoom(null, null);
        return shown;""")
    assert shown == [1, 50, 0, 1], shown


# Requests of a part of the steps wait for held[n](), which lets the n-th through.
HELD = """
window.held = [];
window.plain = window.plain || window.fetch;
window.fetch = async (url, ...more) => {
  if (String(url).includes("from=")) await new Promise((resolve) => held.push(resolve));
  return plain(url, ...more);
};
"""


def zooms_do_not_overtake(page, url):
    open_run(page, url, "long")
    page.script(HELD)
    page.script("window.both = Promise.all([zoom(100, 200), zoom(null, null)]);")
    page.until(lambda: page.script("return held.length;") == 1, "the first zoom")
    page.driver.execute_async_script("held[0](); both.then(arguments[0]);")
    assert page.script("return state.series.get('long').detail;") is None, "an answer that nobody waits for"
    page.script("window.both = Promise.all([zoom(100, 200), zoom(300, 400)]);")
    page.until(lambda: page.script("return held.length;") == 3, "two zooms")
    page.script("held[2]();")
    page.until(lambda: page.script("return !!state.series.get('long').detail;"), "the later zoom")
    page.driver.execute_async_script("held[1](); both.then(arguments[0]);")
    assert page.script("return state.series.get('long').detail.first;") == 300, "the later part"
    page.script("window.fetch = plain;")
    # A run that is ticked later has the part, too; the server reads one at a time, and refuses the other meanwhile.
    open_run(page, url, "narrow")
    page.script("zoom(50, 60); state.drawn.add('long'); updateSeries();")
    points = "return (state.series.get('long')?.detail ? state.series.get('long').points('loss') : []).map(([at]) => at);"
    page.until(lambda: page.script(points)[:11] == list(range(50, 61)), "all steps of the part")
    assert all(step > 60 for step in page.script(points)[11:]), "bins since"
    # A run that is drawn again has what is shown by then.
    page.script("""
        const box = (run) => document.querySelector(`#runs [aria-label='draw ${run}']`);
        drawRuns();
        box("long").click();
        zoom(null, null);
        box("long").click();""")
    page.until(lambda: page.script(points) == [] and page.script("return charts[0].data.length;") > 1000, "its beginning")


def nodes_stay(page, url):
    """Nodes that are selected, focused or scrolled to stay, and so does where they are."""
    open_run(page, url, "watched")
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#events li"), "events")
    found = page.script("""
        const first = byId("events").lastChild;
        state.events.push({ event: "one_more", unix_ms: Date.now() });
        drawEvents(state.events);
        getSelection().selectAllChildren(byId("checkpoints").firstChild);
        drawStatus(state.status);
        return [first.isConnected, byId("events").firstChild.dataset.event, String(getSelection())];""")
    assert found[0] and found[1] == "one_more" and found[2].startswith("step "), found
    rows = page.script("""
        const box = document.createElement("ol");
        const items = (...texts) => texts.map((text) => element("li", text));
        const said = [];
        for (const texts of [["a", "b", "c"], ["b", "d", "c"], ["c", "b"], [], ["e", "e"]]) {
          setChildren(box, items(...texts));
          said.push([...box.children].map((one) => one.textContent).join(""));
        }
        return said;""")
    assert rows == ["abc", "bdc", "cb", "", "ee"], rows
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#runs input"), "the table")
    before, after, label = page.script("""
        document.querySelector("#runs [aria-label='draw narrow']").focus();
        scrollTo(0, 1e6);
        const before = scrollY;
        state.runs = [{ ...state.runs[0], name: "a" }, ...state.runs];
        drawRuns();
        return [before, scrollY, document.activeElement.getAttribute("aria-label")];""")
    assert before > 0 and label == "draw narrow", (before, label)
    row = page.script("return byId('runs').rows[0].offsetHeight;")
    assert abs(after - before) <= 2 * row, (before, after)


# Every address that is asked for; of `/runs.json` the answer says that the run `short` is running.
RUNNING = """
window.asked = [];
window.plain = window.plain || window.fetch;
window.fetch = async (url, ...more) => {
  asked.push(String(url));
  const answer = await plain(url, ...more);
  if (url !== "/runs.json") return answer;
  const { runs } = await answer.json();
  const said = runs.map((run) => run.name === "short" ? { ...run, condition: window.condition } : run);
  return new Response(JSON.stringify({ runs: said }));
};
"""


def others_are_updated(page, url):
    """Runs beside the page's own are asked for while they run, and once more when they have ended."""
    open_run(page, url, "narrow")
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#runs input"), "the table")
    page.script(RUNNING + "window.condition = 'running';")
    page.script("document.querySelector(`#runs [aria-label='draw short']`).click();")
    page.until(lambda: page.script("return !!state.series.get('short')?.width;"), "the other run")
    counted = lambda: page.script("return asked.filter((url) => url.startsWith('/series.json?run=short')).length;")
    before = counted()
    page.script("updateRuns();")
    page.until(lambda: counted() > before, "the run that runs")
    page.script("window.condition = 'over'; updateRuns();")
    page.until(lambda: page.script("return state.runs.find((run) => run.name === 'short').condition;") == "over", "its end")
    page.until(lambda: page.script("return !state.series.get('short').live && !state.updating;"), "its last steps")
    page.script("document.querySelector(`#runs [aria-label='draw narrow']`).click();")
    before = page.script("return asked.filter((url) => url.startsWith('/series.json?run=narrow')).length;")
    page.script("updateSeries();")
    page.until(lambda: page.script("return asked.filter((url) => url.startsWith('/series.json?run=narrow')).length;")
               > before, "the page's own run, which is not drawn")
    page.script("window.fetch = plain;")


def silence_is_told(page, url):
    """A board without an answer is told of, though its stream is open; one that answers again, too."""
    open_run(page, url, "narrow")
    page.until(lambda: page.script("return state.stream.readyState;") == 1, "the stream")
    page.script("window.plain = window.fetch; window.fetch = () => Promise.reject(new TypeError()); state.heard = 0; "
                "updateRuns();")
    page.until(lambda: "has not answered since" in page.text("outcome"), "silence")
    page.script("window.fetch = plain; updateRuns();")
    page.until(lambda: "has not answered since" not in page.text("outcome"), "an answer")
    # A stream that was refused is asked for again, and then the page is as any other.
    page.script("""
        window.Plain = window.EventSource;
        window.streams = [];
        window.EventSource = class extends Plain {
          constructor(url) { super(streams.length === 0 ? "/events?run=none" : url); streams.push(this); }
        };
        state.stream.close();
        listen();""")
    page.until(lambda: page.script("return streams.length > 1 && streams[1].readyState;") == 1, "another stream")
    page.until(lambda: page.script("return state.silentSince;") is None, "its answer")
    page.script("window.EventSource = Plain;")
    page.driver.get_log("browser")  # the stream that was refused


def problems_are_told(page, url):
    """Problems name their run, and stay until they are over; what grows each second is not said each second."""
    open_run(page, url, "narrow")
    page.script("""
        window.plain = window.fetch;
        window.fetch = async (url, ...more) =>
          String(url).includes("series.json?run=narrow") ? new Response("busy", { status: 503 }) : plain(url, ...more);
        state.drawn.add("short");
        updateSeries();""")
    page.until(lambda: page.script("return !!state.series.get('short')?.width && !state.updating;"), "the other run")
    assert page.text("problem") == "narrow: busy", page.text("problem")
    page.script("window.fetch = plain; updateRuns();")
    page.until(lambda: not page.text("problem"), "no problem, by itself")
    heard = page.script("""
        const said = [];
        for (const seconds of ["3.0", "4.0"]) {
          drawStatus({ ...state.status, stall: { text: `rank 1 waits for rank 0 for ${seconds} s`, rank: 0 } });
          said.push(byId("stall").textContent, byId("stall-heard").textContent);
        }
        drawStatus({ ...state.status, stall: undefined });
        return said;""")
    assert heard[0] != heard[2] and heard[1] == heard[3], heard
    assert re.match("rank 1 waits for rank 0(;|$)", heard[1]), heard


def steps_taken_back_go(page, url, runs):
    """A start that goes on from an earlier step leaves the steps before it."""
    open_run(page, url, "narrow")
    file = runs / "narrow" / "metrics.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    drawn = lambda: page.script("return charts[0].data.length;")
    page.until(lambda: drawn() == len(lines), "all steps")
    file.write_text("".join(lines[:60]))
    page.until(lambda: drawn() == 60, "the steps that are left")
    file.write_text("".join(lines))
    page.until(lambda: drawn() == len(lines), "the steps that were done again")


def loads_of_another_run_go(page, url, runs):
    """Loads that were looked at are not those of a run of the same name that has as many steps by now."""
    open_run(page, url, "experts")
    file = runs / "experts" / "metrics.jsonl"
    lines = file.read_text()

    def choose(step):
        """Chooses a step; returns the texts shown at once, from the loads that the page has kept."""
        return page.script("expertMap.choose(arguments[0] - 1); return ['loads-at', 'loads-summary']"
                           ".map((id) => byId(id).textContent);", step)

    page.until(lambda: page.text("loads-at") == "step 30, the newest", "the newest loads")
    choose(10)
    page.until(lambda: page.text("loads-at") == "step 10", "loads that are kept from now on")
    assert "Largest load 2.5 " in page.text("loads-summary"), page.text("loads-summary")
    choose(30)
    other = file.with_suffix(".other")
    other.write_text(lines.replace("2.5", "3.5"))
    other.replace(file)  # at once: the board never sees fewer steps
    page.until(lambda: "Largest load 3.5 " in page.text("loads-summary"), "the other run's newest loads")
    shown = choose(10)
    assert shown[0] != "step 10", f"loads of the run before: {shown}"
    page.until(lambda: page.text("loads-at") == "step 10", "the other run's loads")
    assert "Largest load 3.5 " in page.text("loads-summary"), page.text("loads-summary")
    file.write_text(lines)


def runs_go(page, url, runs):
    """A run that is removed is no longer drawn; the page's own is said to be gone, and shown when it is there again."""
    shutil.copytree(runs / "narrow", runs / "passing")
    open_run(page, url, "narrow")
    page.until(lambda: page.driver.find_elements(By.CSS_SELECTOR, "#runs [aria-label='draw passing']"), "the table")
    page.script("document.querySelector(`#runs [aria-label='draw passing']`).click();")
    page.until(lambda: page.script("return !!state.series.get('passing')?.width;"), "the other run")
    shutil.rmtree(runs / "passing")
    page.until(lambda: page.script("updateRuns(); return [...state.drawn].join() === 'narrow';"), "one run")
    page.until(lambda: page.script("return !state.updating && charts[0].curves.length;") == 1, "its curve")
    shutil.copytree(runs / "narrow", runs / "passing")
    open_run(page, url, "passing")
    shutil.rmtree(runs / "passing")
    page.until(lambda: "is gone" in page.text("notice"), "the end of the run's directory")
    page.until(lambda: page.text("condition") == "unknown", "nothing is known of it")
    shutil.copytree(runs / "short", runs / "passing")
    page.until(lambda: page.script("updateRuns(); return byId('notice').hidden;"), "another run of its name")
    page.until(lambda: page.script("return charts[0].data.length;") == 2, "the other run's steps")
    page.driver.get("about:blank")
    shutil.rmtree(runs / "passing")
    page.driver.get_log("browser")  # what was asked of a run that was gone


def board_comes_back(page, board_at, runs):
    """Charts go on when a board is there again, which tells only of what is new to it. `board_at`: a context of one
    that has the same address each time."""
    file = runs / "narrow" / "metrics.jsonl"
    lines = file.read_text()
    with board_at() as url:
        open_run(page, url, "narrow")
    page.until(lambda: "has not answered since" in page.text("outcome"), "the end of the board")
    newest = json.loads(lines.splitlines()[-1])
    file.write_text(lines + json.dumps(newest | {"step": newest["step"] + 1, "loss": 0.5}) + "\n")
    with board_at() as url:
        page.until(lambda: page.number("loss", "loss") == 0.5, "the steps since")
        page.until(lambda: "has not answered" not in page.text("outcome"), "an answer")
        page.driver.get("about:blank")
    file.write_text(lines)
    page.driver.get_log("browser")  # what was asked while there was no board

"use strict";
// Main script: selects the runs to show, and redraws what has changed.

const state = {
  run: "", runs: [], drawn: new Set(), series: new Map(), events: [], status: {}, stream: null,
  asked: false, running: false,
};
const charts = [
  new Chart("loss", ["loss", "val_loss"], zoom), new Chart("grad_norm", ["grad_norm"]),
  new Chart("lr", ["lr"]), new Chart("tokens_per_second", ["tokens_per_second"]),
];
const otherChart = new Chart("other-chart", []);

function shownSeries() {
  return [...state.drawn].map((run) => state.series.get(run)).filter(Boolean);
}

function options(loss) {
  return {
    smoothing: loss ? Math.min(0.999, Number(byId("smoothing").value) / 100) : 0,
    logX: byId("log-x").checked, logY: loss && byId("log-y").checked,
    gridColor: getComputedStyle(document.documentElement).getPropertyValue("--line").trim(),
  };
}

function drawCharts() {
  const all = shownSeries();
  for (const chart of charts) chart.draw(all, options(chart.id === "loss"));
  const main = state.series.get(state.run);
  if (!main) return;
  for (const chart of charts) {
    const known = chart.quantities.filter((name) => main.newest(name) !== null);
    setText(`${chart.id}-newest`,
      known.map((name) => `${name} ${formatNumber(main.newest(name))}`).join(" · "));
  }
  drawOther(main, all);
  drawHeat(main, byId("heat"), byId("heat-legend"));
  setShown("problem", main.damagedLines ? `${main.damagedLines} lines of metrics.jsonl are damaged` : "");
}

function drawOther(main, all) {
  const usual = new Set(["loss", "val_loss", "grad_norm", "lr", "tokens_per_second", "tokens"]);
  const names = [...main.columns.keys()].filter((name) => !usual.has(name) && !name.startsWith("unit_grad_norm/"));
  const select = byId("other");
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before;
  }
  if (!select.value) return;
  otherChart.quantities = [select.value];
  otherChart.draw(all, options(false));
  setText("other-chart-newest", `${select.value} ${formatNumber(main.newest(select.value))}`);
}

async function updateSeries() {
  if (state.asked) return;  // one request at a time
  state.asked = true;
  try {
    for (const run of [...state.drawn]) {
      if (!state.series.has(run)) state.series.set(run, new Series(run));
      const series = state.series.get(run);
      if (run === state.run || !series.width) await series.update();
    }
    drawCharts();
  } catch (failure) {
    setShown("problem", String(failure.message || failure));
  } finally {
    state.asked = false;
  }
}

async function zoom(from, to) {
  for (const series of shownSeries()) await series.zoom(from, to);
  drawCharts();
}

function drawStatus(status) {
  state.status = status;
  const failed = status.outcome && ![0, 75].includes(status.outcome.exit_code);
  const condition = byId("condition");
  condition.className = `pill ${failed ? "failed" : status.condition}`;
  setText(condition, failed ? "failed" : status.condition || "unknown");
  document.title = `${status.run} · step ${status.step ?? "–"}`;
  byId("bar").value = status.steps ? status.step / status.steps : 0;
  setText("summary", [
    `step ${status.step ?? "–"} of ${status.steps ?? "–"}`,
    rateText(status),
    status.condition === "running" && status.remaining_s > 0 ? `about ${formatSeconds(status.remaining_s)} left` : "",
    `${status.ranks_count ?? "–"} ${status.ranks_count === 1 ? "rank" : "ranks"}`, `generation ${status.generation ?? "–"}`,
    status.saved && status.saved.step !== undefined ? `saved at step ${status.saved.step}` : "",
  ].filter(Boolean).join(" · "));
  setShown("outcome", status.outcome ? `${status.outcome.text} (exit code ${status.outcome.exit_code})` : "");
  setShown("stall", [status.stall ? status.stall.text : status.error || "", ...(status.problems || [])].filter(Boolean).join("; "));
  drawRanks(status);
  drawMemory(status);
}

/// Includes the estimated end time, without evaluations.
function rateText(status) {
  if (!status.tokens_per_second) return "";
  const over = status.rate_window_s ? ` over the last ${formatSeconds(status.rate_window_s)} of training` : "";
  return `${formatCount(status.tokens_per_second)} tokens/s${over}`;
}

function listen() {
  if (state.stream) state.stream.close();
  state.events = [];
  const stream = new EventSource(`/events?run=${encodeURIComponent(state.run)}`);
  state.stream = stream;
  const current = (handler) => (message) => { if (stream === state.stream) handler(JSON.parse(message.data)); };
  stream.addEventListener("open", () => { state.events = []; setShown("problem", ""); });
  stream.addEventListener("error", () => setShown("problem", "The server does not answer; trying again."));
  stream.addEventListener("status", current(drawStatus));
  stream.addEventListener("log", current((event) => { state.events.push(event); scheduleEvents(); }));
  stream.addEventListener("metrics", current(scheduleSeries));
  stream.addEventListener("gone", () => { stream.close(); setShown("problem", "The run's directory is no more."); });
}

function atMostEvery(milliseconds, action) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    setTimeout(() => { waiting = false; action(); }, milliseconds);
  };
}
const scheduleSeries = atMostEvery(700, updateSeries);
const scheduleEvents = atMostEvery(100, () => drawEvents(state.events));

function choose(run) {
  state.run = run;
  state.drawn = new Set([run]);
  setText("title", run);
  history.replaceState(null, "", `?run=${encodeURIComponent(run)}`);
  listen();
  updateSeries();
  drawRuns();
}

function drawRuns() {
  byId("all-runs").hidden = state.runs.length < 2;
  byId("runs").replaceChildren(...state.runs.map((run) => {
    const row = element("tr");
    const box = element("input");
    box.type = "checkbox";
    box.checked = state.drawn.has(run.name);
    box.setAttribute("aria-label", `draw ${run.name}`);
    box.addEventListener("change", () => {
      state.drawn[box.checked ? "add" : "delete"](run.name);
      updateSeries();
    });
    const cells = [run.name, run.condition, `${run.step} of ${run.steps}`, formatNumber(run.loss),
      formatNumber(run.val_loss), run.tokens_per_second ? formatCount(run.tokens_per_second) : "–"];
    row.append(element("td"), ...cells.map((text) => element("td", text)));
    row.firstChild.append(box);
    return row;
  }));
}

async function updateRuns() {
  const answer = await fetch("/runs.json");
  if (!answer.ok) return;
  state.runs = (await answer.json()).runs;
  const select = byId("run");
  const names = state.runs.map((run) => run.name);
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    select.replaceChildren(...names.map((name) => new Option(name, name)));
  }
  const wanted = new URLSearchParams(location.search).get("run");
  if (!state.run && names.length > 0) {
    const newest = [...state.runs].sort((a, b) => b.written_unix_s - a.written_unix_s)[0].name;
    choose(names.includes(wanted) ? wanted : newest);
  }
  select.value = state.run;
  drawRuns();
}

byId("run").addEventListener("change", (event) => choose(event.target.value));
for (const id of ["smoothing", "log-x", "log-y", "other"]) byId(id).addEventListener("input", drawCharts);
byId("zoom-out").addEventListener("click", () => {
  for (const chart of charts) if (chart.graph) chart.graph.resetZoom();
  zoom(null, null);
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  drawCharts();
});
window.addEventListener("resize", () => { drawArrows(state.status.stall); drawCharts(); });
updateRuns();
setInterval(updateRuns, 5000);

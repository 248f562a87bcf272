"use strict";
// Main script: selects the runs to show, and redraws what has changed.

const state = {
  run: "", runs: [], drawn: new Set(), colors: new Map(), series: new Map(), range: null, events: [],
  status: {}, stream: null, heard: 0, silentSince: null, gone: false, shownRuns: "", asking: false, updating: false,
  again: false,
};
const kPatience = 10000;  // milliseconds without a word, and the board is silent
const charts = ["loss", "grad_norm", "lr", "tokens_per_second"].map((id) =>
  new Chart(id, id === "loss" ? ["loss", "val_loss"] : [id], zoom));
const otherChart = new Chart("other-chart", [], zoom);
const expertMap = new ExpertMap();
const samples = new Samples();
const expertCharts = [["expert_load", "expert_load_max", "expert_load_min"],
  ["expert_bias", "expert_bias_max", "expert_bias_min"], ["expert_entropy", "expert_entropy"],
  ["dead_experts", "dead_experts"], ["balance"]].map(([id, ...quantities]) =>
  new Chart(id, quantities, zoom, (step) => expertMap.peek(id, step)));

function colorOf(run) {  // the same in every chart, for as long as the page is open
  if (!state.colors.has(run)) state.colors.set(run, kColors[state.colors.size % kColors.length]);
  return state.colors.get(run);
}

function shownSeries() {
  return [...state.drawn].map((run) => state.series.get(run)).filter(Boolean);
}

function options(chart) {
  const loss = chart.id === "loss";
  const logX = byId("log-x").checked;
  const begins = logX && state.range?.[0] <= 0;  // a logarithmic axis begins above 0
  const range = !begins ? state.range : state.range[1] > 1 ? [1, state.range[1]] : null;
  return {
    smoothing: loss ? Math.min(0.999, Number(byId("smoothing").value) / 100) : 0,
    logX, range, colorOf,
    logY: loss ? byId("log-y").checked : /grad_norm|perplexity|expert_load/.test(chart.quantities[0]),
    gridColor: getComputedStyle(document.documentElement).getPropertyValue("--muted").trim(),
  };
}

/// Training and validation losses of the sources of a mixture are with the loss.
function isOfSources(name) { return /^(val_)?source_loss\//.test(name); }

function drawCharts() {
  const main = state.series.get(state.run);
  if (!main) return;
  byId("charts").hidden = ![main, ...shownSeries()].some(({ columns }) => columns.size);  // no size while it is hidden
  charts[0].quantities = ["loss", "val_loss", ...[...main.columns.keys()].filter(isOfSources)];
  chooseOther(main);
  for (const chart of [...charts, otherChart]) chart.draw(shownSeries(), options(chart));
  drawExperts(main);
  drawHeat(main, byId("heat"), byId("heat-legend"));
  drawSummary();
}

function isOfExperts(name) { return name.startsWith("balance/") || /^(expert_(load|bias|entropy)|dead_experts)/.test(name); }

function drawExperts(main) {
  const names = [...main.columns.keys()].filter(isOfExperts);
  for (const chart of expertCharts) {
    if (chart.id === "balance") chart.quantities = names.filter((name) => name.startsWith("balance/"));
    const card = byId(`${chart.id}-card`);
    card.hidden = !chart.quantities.some((name) => names.includes(name));
    if (card.hidden) chart.clear();
    else chart.draw(shownSeries(), options(chart));
  }
  expertMap.draw();
}

function chooseOther(main) {
  const usual = new Set([...charts.flatMap((chart) => chart.quantities), "tokens",
    ...[...main.columns.keys()].filter(isOfExperts)]);
  const names = [...main.columns.keys()].filter((name) => !usual.has(name) && !name.startsWith("unit_grad_norm/"));
  const select = byId("other");
  if (names.join() !== [...select.options].map((option) => option.value).join()) {
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(nameOf(name), name)));
    if (names.includes(before)) select.value = before;
  }
  byId("other-card").hidden = names.length === 0;
  otherChart.quantities = names.length > 0 ? [select.value] : [];
}

/// One update at a time; another follows if it was asked for meanwhile.
async function updateSeries() {
  state.again = true;
  if (state.updating) return;
  state.updating = true;
  try {
    while (state.again) {
      state.again = false;
      for (const run of new Set([state.run, ...state.drawn].filter(Boolean))) await updateRun(run);
      const main = state.series.get(state.run);
      expertMap.update(state.run, (main?.expertSteps ?? 0) > 0, main?.reading);
      drawCharts();
    }
  } finally {
    state.updating = false;
  }
}

function isRunning(run) { return state.runs.some((one) => one.name === run && one.condition === "running"); }

async function updateRun(run) {
  if (!state.series.has(run)) state.series.set(run, new Series(run));
  const series = state.series.get(run);
  const running = isRunning(run);
  if (run !== state.run && !running && !series.live && !series.failed && series.width) return;
  try {
    await series.update();
    series.failed = false;
    series.live = running;  // its last steps come when it has ended
    series.problem = series.damagedLines ? `${run}: ${series.damagedLines} lines of metrics.jsonl are damaged` : "";
    if (state.range && series.width > 1 && !series.asked) zoomSeries(series);
  } catch (failure) {
    fail(series, failure);
  }
  showProblems();
}

/// Notes a failure of a request, which is repeated (followRuns()), of a run that has ended, too.
function fail(series, failure) {
  series.failed = true;
  series.problem = `${series.run}: ${failure.message || failure}`;
}

function showProblems() {
  setShown("problem", [...state.series.values()].filter(({ run }) => run === state.run || state.drawn.has(run))
    .map(({ problem }) => problem).filter(Boolean).join("; "));
}

/// Reads the part that is shown at full resolution.
async function zoomSeries(series) {
  try {
    await series.zoom(...(state.range ?? [null, null]));
  } catch (failure) {
    fail(series, failure);
    series.asked = null;
    showProblems();
  }
  drawCharts();
}

function zoom(from, to) {
  state.range = from === null ? null : [from, to];
  const zoomed = Promise.all(shownSeries().map(zoomSeries));  // which drops at once what was read of another part
  drawCharts();
  return zoomed;
}

function drawStatus(status) {
  state.status = status;
  const failed = status.outcome && ![0, 75].includes(status.outcome.exit_code);
  const silent = state.silentSince !== null && status.condition === "running";
  const kind = silent ? "unknown" : failed ? "failed" : status.condition || "unknown";
  byId("condition").className = `pill ${kind}`;
  setShown("condition", silent ? "no answer" : kind === "over" ? "ended" : kind);
  document.title = `${state.run} · step ${status.step ?? "–"}`;
  byId("bar").value = status.steps ? status.step / status.steps : 0;
  const stall = [status.stall?.text, status.error, status.saved?.failure && `The newest save failed: ${status.saved.failure}`,
    ...(status.problems || [])].filter(Boolean).join("; ");
  setShown("stall", stall);
  setText("stall-heard", stall.replace(/ for [0-9.]+ s\b/g, ""));  // said once, not each second
  drawSummary();
  drawRanks(status);
  drawMemory(status);
  drawCheckpoints(status, state.events);
}

/// What changes with the clock, too.
function drawSummary() {
  const { status } = state;
  const running = status.condition === "running" && state.silentSince === null;
  const saved = status.saved?.step;
  setText("summary", status.steps === undefined ? "" : [
    `step ${status.step ?? "–"} of ${status.steps}`, rateText(status, running),
    running && status.remaining_s > 0 ? `about ${formatSeconds(status.remaining_s)} left` : "",
    `${status.ranks_count ?? "–"} ${status.ranks_count === 1 ? "rank" : "ranks"}`,
    `generation ${status.generation ?? "–"}`, saved === undefined ? "" : `saved at step ${saved}`,
  ].filter(Boolean).join(" · "));
  const heard = `${formatTime(1000 * status.written_unix_s)}, ${formatAgo(1000 * status.written_unix_s)}`;
  const resume = "The command that started it resumes it from its newest checkpoint.";
  const end = {
    over: () => `Ended ${heard}: ${status.outcome?.text} (exit code ${status.outcome?.exit_code}).`,
    died: () => `Its process is gone; last heard of ${heard}. ${resume}`,
    lost: () => `Its machine is silent; last heard of ${heard}. If it has ended: ${resume}`,
  }[status.condition];
  setShown("outcome", [end && end(), state.silentSince !== null &&
    `This board has not answered since ${formatTime(state.silentSince)}, ${formatAgo(state.silentSince)}. ` +
    "A run's own board ends with the run; actortrain board runs/ shows runs at any time.",
  ].filter(Boolean).join(" "));
}

/// Of a running run, the rate that its time left is estimated with; otherwise the mean of all steps.
function rateText(status, running) {
  const mean = state.series.get(state.run)?.meanRate();
  if (!running) return mean > 0 ? `${formatCount(mean)} tokens/s on average` : "";
  if (!status.tokens_per_second) return "";
  const over = status.rate_window_s ? ` over the last ${formatSeconds(status.rate_window_s)} of training` : "";
  return `${formatCount(status.tokens_per_second)} tokens/s${over}`;
}

/// Since when the board does not answer; null: it does.
function hear(silentSince) {
  state.silentSince = silentSince;
  drawStatus(state.status);
}

function listen() {
  const stream = state.stream = new EventSource(`/events?run=${encodeURIComponent(state.run)}`);
  const on = (kind, handler) => stream.addEventListener(kind, (message) => {
    state.heard = Date.now();
    handler(JSON.parse(message.data));
  });
  stream.addEventListener("open", () => {  // perhaps to another server, which tells only of what comes
    state.events = [];
    scheduleEvents();
    scheduleSeries();
    hear(null);
  });
  stream.addEventListener("error", () => {
    hear(state.silentSince ?? Date.now());
    if (stream.readyState !== EventSource.CLOSED) return;
    setTimeout(() => { if (state.stream === stream && !state.gone) listen(); }, 5000);  // the browser gives up
  });
  on("status", drawStatus);
  on("log", (event) => { state.events.push(event); scheduleEvents(); });
  on("restart", () => { state.events = []; scheduleEvents(); });
  on("metrics", scheduleSeries);
  on("gone", () => { stream.close(); sayGone(); });
}

function sayGone() {
  state.gone = true;
  setShown("notice", "The directory of this run is gone.");
  state.status = { ...state.status, condition: "unknown" };
  hear(null);
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
const scheduleEvents = atMostEvery(100, () => {
  samples.take(state.events);
  drawEvents(state.events);
  drawCheckpoints(state.status, state.events);
});

/// Shows the run of the address, or else the newest one; a sentence if there is none.
function choose() {
  const wanted = new URLSearchParams(location.search).get("run");
  const newest = [...state.runs].sort((a, b) => b.written_unix_s - a.written_unix_s)[0];
  const run = wanted === null ? newest : state.runs.find((one) => one.name === wanted);
  setShown("notice", run ? "" : wanted === null
    ? "No run is in this folder yet; one appears here as soon as it starts (actortrain run CONFIG)."
    : `No run of this folder is named “${wanted}”. ${newest ? "The table lists those that exist." : "It has none yet."}`);
  if (!run) return;
  state.run = run.name;
  state.drawn.add(run.name);
  byId("of-run").hidden = false;
  setText("title", run.name);
  listen();
  updateSeries();
}

function runRow(run) {
  const row = element("tr");
  row.dataset.run = run.name;
  const box = element("input");
  box.type = "checkbox";
  box.checked = state.drawn.has(run.name);
  box.setAttribute("aria-label", `draw ${run.name}`);
  box.addEventListener("change", () => {
    state.drawn[box.checked ? "add" : "delete"](run.name);
    const series = state.series.get(run.name);
    if (box.checked && series?.width) zoomSeries(series);  // another part may be shown than when it was drawn last
    updateSeries();
    drawRuns();
  });
  const link = element("a", run.name);
  link.href = `?run=${encodeURIComponent(run.name)}`;
  if (run.name === state.run) link.setAttribute("aria-current", "page");
  const rate = run.condition === "running" && run.tokens_per_second;
  const cells = [box, link, run.condition === "over" ? "ended" : run.condition,
    run.steps ? `${run.step} of ${run.steps}` : "–", formatNumber(run.loss), formatNumber(run.val_loss),
    rate ? formatCount(rate) : "–"].map((content) => { const cell = element("td"); cell.append(content); return cell; });
  if (box.checked) cells[0].append(swatch(colorOf(run.name)));
  row.append(...cells);
  return row;
}

function drawRuns() {
  byId("all-runs").hidden = state.runs.length < (state.run ? 2 : 1);
  const shown = JSON.stringify([state.runs, [...state.drawn], state.run]);
  if (shown !== state.shownRuns) {
    state.shownRuns = shown;
    const focused = document.activeElement?.closest("#runs tr");
    const [name, kind] = [focused?.dataset.run, document.activeElement?.localName];
    byId("runs").replaceChildren(...state.runs.map(runRow));
    const row = focused && [...byId("runs").rows].find(({ dataset }) => dataset.run === name);
    row?.querySelector(kind)?.focus({ preventScroll: true });
  }
  const table = byId("runs").closest(".scroll");
  byId("runs-more").hidden = table.scrollWidth <= table.clientWidth;
}

async function updateRuns() {
  if (state.asking) return;
  state.asking = true;
  const late = setTimeout(saySilent, kPatience);
  const answer = await request("/runs.json").catch(() => null);
  const runs = answer?.ok ? (await answer.json().catch(() => null))?.runs : undefined;
  clearTimeout(late);
  state.asking = false;
  if (!answer) saySilent();
  if (!runs) return;
  state.runs = runs;
  if (state.run) followRuns(new Set(runs.map(({ name }) => name)));
  else choose();
  drawRuns();
}

/// A stream of a machine that is lost stays open, and silent.
function saySilent() {
  if (state.run && !state.gone && Date.now() - state.heard > kPatience) hear(state.silentSince ?? Date.now());
}

/// Follows those that are drawn among the runs that exist; the stream tells of the page's own alone.
function followRuns(names) {
  const { stream } = state;
  if (state.gone && names.has(state.run)) {
    state.gone = false;
    setShown("notice", "");
    listen();
  } else if (!state.gone && stream.readyState === EventSource.CLOSED && !names.has(state.run)) {
    sayGone();
  } else if (state.silentSince !== null && stream.readyState === EventSource.OPEN) {
    stream.close();  // It may be one that nothing comes through any more.
    listen();
  }
  for (const run of [...state.drawn].filter((one) => one !== state.run && !names.has(one))) {
    state.drawn.delete(run);
    state.series.delete(run);
    scheduleSeries();
  }
  const others = [...state.drawn].filter((run) => run !== state.run);
  const asks = (run) => state.series.get(run)?.failed;
  if (others.some((run) => isRunning(run) || state.series.get(run)?.live || asks(run)) || (asks(state.run) && !state.gone)) {
    scheduleSeries();
  }
}

for (const id of ["smoothing", "log-x", "log-y", "other"]) byId(id).addEventListener("input", drawCharts);
byId("zoom-out").addEventListener("click", () => {
  for (const { graph } of [...charts, otherChart, ...expertCharts]) if (graph?.isZoomed()) graph.resetZoom();
  zoom(null, null);
});
byId("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  localStorage.theme = root.dataset.theme = dark ? "light" : "dark";
  drawCharts();
});
window.addEventListener("resize", () => { drawArrows(state.status.stall); drawCharts(); drawRuns(); });
if (localStorage.theme) document.documentElement.dataset.theme = localStorage.theme;
updateRuns();
setInterval(updateRuns, 5000);
setInterval(drawSummary, 1000);

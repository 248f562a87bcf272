"use strict";
// Metrics of runs, and their charts.

/// Metrics of a run received from the server; requests only new ones.
class Series {
  constructor(run) {
    this.run = run;
    this.width = 0;
    this.first = 0;
    this.lastStep = -1;
    this.reading = 0;
    this.columns = new Map();
    this.detail = null;
    this.asked = null;  // the newest zoom
    this.live = false;  // ran when it was last asked for
    this.failed = false;
    this.problem = "";
  }

  async update() {
    const since = this.width
      ? `&since=${Math.max(this.lastStep, 0)}&width=${this.width}&reading=${this.reading}` : "";
    const answer = await request(`/series.json?run=${encodeURIComponent(this.run)}${since}`);
    if (!answer.ok) throw new Error(await answer.text());
    const news = await answer.json();
    if (news.width !== this.width || news.reading !== this.reading) {  // then all is there once more
      this.columns = new Map();
      this.first = news.first;
      this.detail = this.asked = null;
    }
    this.width = news.width;
    this.reading = news.reading;
    this.lastStep = news.last_step;
    this.damagedLines = news.damaged_lines || 0;
    this.expertSteps = news.expert_steps || 0;
    const from = (news.first - this.first) / news.width;
    for (const [name, lists] of Object.entries(news.columns)) {
      this.columns.set(name, Series.joined(this.columns.get(name), lists, from));
    }
  }

  static joined(old, lists, from) {
    const kept = old || { min: [], max: [], mean: [] };
    kept.newest = lists.newest ?? null;
    for (const part of ["min", "max", "mean"]) {
      const fill = (kept[part].length > from ? kept[part].slice(0, from) : kept[part].slice());
      while (fill.length < from) fill.push(null);
      kept[part] = fill.concat(lists[part] || lists.mean);
    }
    return kept;
  }

  /// Only steps from .. to, at full resolution; null: the whole run. A later zoom makes this one void.
  async zoom(from, to) {
    const asked = this.asked = {};
    this.detail = null;
    if (from === null || this.width === 1) return;
    const range = `&from=${Math.max(0, Math.floor(from))}&to=${Math.ceil(to)}`;
    let answer = null;
    while (this.asked === asked && (!answer || answer.status === 503)) {
      if (answer) await new Promise((resolve) => setTimeout(resolve, 500));  // the server reads one part at a time
      answer = await request(`/series.json?run=${encodeURIComponent(this.run)}${range}`)
        .catch((failure) => { if (this.asked === asked) throw failure; });
    }
    if (this.asked !== asked) return;
    if (!answer.ok) throw new Error(await answer.text());
    const detail = await answer.json();
    if (this.asked === asked) this.detail = detail;
  }

  /// Points [step, [min, mean, max]] of a quantity; of a part at full resolution, the steps since it was read
  /// are in bins.
  points(name) {
    const whole = Series.pointsOf(this, this.columns.get(name));
    if (!this.detail) return whole;
    const since = whole.filter(([step]) => step > this.detail.last_step);
    return [...Series.pointsOf(this.detail, this.detail.columns[name]), ...since];
  }

  static pointsOf({ first, width }, lists) {
    if (!lists) return [];
    const { mean, min = mean, max = mean } = lists;
    const points = [];
    for (let bin = 0; bin < mean.length; ++bin) {
      if (mean[bin] !== null) points.push([first + bin * width, [min[bin], mean[bin], max[bin]]]);
    }
    return points;
  }

  /// Value of one step; the last bin holds the mean of several.
  newest(name) {
    const column = this.columns.get(name);
    return column ? column.newest : null;
  }

  /// Tokens over the time of all steps: bins have equally many. NaN: unknown.
  meanRate() {
    const { mean } = this.columns.get("tokens_per_second") || { mean: [] };
    const rates = mean.filter((rate) => rate > 0);
    return rates.length / rates.reduce((sum, rate) => sum + 1 / rate, 0);
  }
}

/// Exponential moving average without bias to the first values; minimum and maximum are unchanged.
function smoothed(points, share) {
  if (share <= 0) return points;
  let sum = 0, weight = 0;
  return points.map(([x, [low, middle, high]]) => {
    sum = share * sum + (1 - share) * middle;
    weight = share * weight + (1 - share);
    const mean = sum / weight;
    return [x, [Math.min(low, mean), mean, Math.max(high, mean)]];
  });
}

// Colours of runs, 3 : 1 against a light and a dark card.
const kColors = ["#3d6fdb", "#c96a00", "#1f8f4f", "#d6336c", "#8b5cf6", "#0e8490", "#c2410c", "#6b7280"];

const kLabelLetter = 8;  // largest width of a digit, in pixels

/// Labels the ticks of dygraphs distinguishably.
function labelled(ticks) {
  const shown = ticks.filter((tick) => tick.label !== "" && tick.label !== undefined);
  const labels = axisLabels(shown.map((tick) => tick.v));
  shown.forEach((tick, at) => { tick.label = labels[at]; });
  return ticks;
}
function axisTicks(...range) { return labelled(Dygraph.numericTicks(...range)); }
function stepTicks(...range) {
  return labelled(Dygraph.numericTicks(...range).filter((tick) => Number.isInteger(tick.v)));
}

const kMoves = { ArrowLeft: [-1, 0], ArrowDown: [-1, 0], ArrowRight: [1, 0], ArrowUp: [1, 0], PageDown: [0, -0.1],
  PageUp: [0, 0.1], Home: [0, -1], End: [0, 1] };

const kDashes = [null, [5, 4], [2, 3], [9, 3, 2, 3]];  // of a chart's quantities

/// Points that a logarithmic axis can show: the range of several steps begins at their mean if one is 0.
function aboveZero(points) {
  return points.map(([x, [low, middle, high]]) => [x, [low > 0 ? low : middle, middle, high]]);
}

/// Chart of several quantities of several runs: a slider over its steps for keyboards. Reading a step calls
/// `onStep`, with null if none is read.
class Chart {
  constructor(id, quantities, onZoom, onStep) {
    Object.assign(this, { id, quantities, onZoom, onStep, graph: null, labels: "", labelWidth: 8 * kLabelLetter,
      curves: [], data: [], range: null, scale: "", step: null, anchor: null, pointed: null });
    this.box = byId(id);
    this.box.setAttribute("role", "slider");
    this.box.tabIndex = 0;
    this.box.addEventListener("keydown", (event) => this.pressed(event));
    this.box.addEventListener("blur", () => this.leave());
    for (const kind of ["mouseup", "touchend"]) document.addEventListener(kind, () => this.moved());
  }

  draw(allSeries, options) {
    this.curves = [];
    for (const series of allSeries) {
      for (const [at, quantity] of this.quantities.entries()) {
        const raw = series.points(quantity);
        if (raw.length === 0) continue;
        const validation = quantity.startsWith("val_");
        const smoothing = validation ? 0 : options.smoothing;
        const name = [allSeries.length > 1 ? series.run : "", nameOf(quantity)].filter(Boolean).join(" ");
        const points = smoothed(raw, smoothing);
        this.curves.push({ series, quantity, name, smoothing, color: options.colorOf(series.run),
          dashes: kDashes[validation ? 1 : at % kDashes.length], points: options.logY ? aboveZero(points) : points,
          sparse: raw.length < (validation ? 200 : 40) });
      }
    }
    const rows = new Map();
    this.curves.forEach((curve, column) => {
      for (const [x, value] of curve.points) {
        if (options.logX && x <= 0) continue;
        if (!rows.has(x)) rows.set(x, new Array(this.curves.length).fill(null));
        rows.get(x)[column] = value;
      }
    });
    this.data = [...rows.entries()].sort((a, b) => a[0] - b[0]).map(([x, values]) => [x, ...values]);
    this.box.setAttribute("aria-label", `${this.quantities.map(nameOf).join(" and ")} over steps`);
    if (this.data.length > 0) this.show(options);
    else this.clear();
  }

  clear() {
    this.graph?.destroy();
    this.graph = this.pointed = null;
    this.labels = "";
    this.read(null);
  }

  show(options) {
    const styles = this.curves.map((curve) => ({ color: curve.color, strokePattern: curve.dashes,
      strokeWidth: curve.sparse ? 1 : 1.6, drawPoints: curve.sparse, pointSize: 3 }));
    const labels = this.curves.map((curve) => `${curve.series.run}\n${curve.quantity}`);
    // New data end neither what is read nor a part that was chosen, whatever they do to the bins and the graph.
    for (const what of ["step", "anchor", "pointed"]) this[what] = this.drawnStep(this[what]);
    const scale = JSON.stringify([this.quantities[0], options.logY]);
    const valueRange = scale === this.scale && this.graph?.isZoomed("y") ? this.graph.yAxisRange() : null;
    this.scale = scale;
    const changing = { file: this.data, dateWindow: options.range, axes: { y: { valueRange } } };
    this.range = options.range;
    const key = JSON.stringify([labels, styles, options.logX, options.logY, options.gridColor]);
    if (this.graph && key === this.labels) {
      this.graph.updateOptions(changing);
    } else {
      this.graph?.destroy();
      this.labels = key;
      this.graph = new Dygraph(this.box, this.data, {
        labels: ["step", ...labels], series: Object.fromEntries(labels.map((label, at) => [label, styles[at]])),
        dateWindow: options.range, customBars: true, connectSeparatedPoints: true, legend: "never",
        logscale: options.logY, animatedZooms: false, axes: {
          x: { logscale: options.logX, ticker: stepTicks },
          y: { ticker: /^dead_/.test(this.quantities[0]) ? stepTicks : axisTicks, axisLabelWidth: this.labelWidth,
            valueRange },
        },
        gridLineColor: options.gridColor, gridLinePattern: [1, 3], gridLineWidth: 1,
        axisLineColor: options.gridColor, axisLineWidth: 1,
        highlightCallback: (event, x) => this.point(x), unhighlightCallback: () => this.point(null),
        zoomCallback: () => this.onZoom(...(this.graph.isZoomed("x") ? this.graph.xAxisRange() : [null, null])),
      });
    }
    this.fitLabels();
    if (this.step !== null) this.markPart();
    const read = this.pointed ?? this.step;
    if (read !== null) this.graph.setSelection(this.rowOf(read));
    this.read(read);
  }

  rowOf(step) { return this.data.findIndex(([x]) => x === step); }

  /// Step of the bin that has this one, or else the first.
  drawnStep(step) { return step === null ? null : (this.data.findLast(([x]) => x <= step) ?? this.data[0])[0]; }

  /// Tells of a part that was dragged or swiped to; of zooms dygraphs tells itself.
  moved() {
    if (!this.graph) return;
    const shown = this.graph.isZoomed("x") ? this.graph.xAxisRange() : null;
    if (String(shown) !== String(this.range)) this.onZoom(...(shown ?? [null, null]));
  }

  /// Reads the step under the pointer; null: the one that the keyboard reads.
  point(step) {
    this.pointed = step;
    this.read(step ?? this.step);
  }

  /// The vertical axis fits its longest label, and never becomes narrower.
  fitLabels() {
    const labels = [...this.box.querySelectorAll(".dygraph-axis-label-y")];
    const longest = Math.max(0, ...labels.map((label) => label.textContent.length));
    if (longest * kLabelLetter <= this.labelWidth) return;
    this.labelWidth = longest * kLabelLetter;
    // Without new data dygraphs would keep the old axis width.
    this.graph.updateOptions({ file: this.data, axes: { y: { axisLabelWidth: this.labelWidth } } });
  }

  /// Says the values of a step, as drawn; null: the newest ones, as measured.
  read(step) {
    const row = step === null ? undefined : this.data.find(([x]) => x === step);
    const spans = this.curves.map((curve, column) => {
      const drawn = row && row[column + 1];
      const value = row ? (drawn ? drawn[1] : null) : curve.series.newest(curve.quantity);
      const smoothing = row && curve.smoothing > 0 ? ", smoothed" : "";
      const span = element("span");
      span.append(swatch(curve.color, curve.dashes), `${curve.name}${smoothing} ${formatNumber(value)}`);
      return span;
    });
    if (row) spans.unshift(element("span", `step ${step}:`));
    byId(`${this.id}-values`).replaceChildren(...spans.flatMap((span) => [span, " "]));
    const ends = this.data.length > 0 ? [this.data[0][0], this.data[this.data.length - 1][0]] : [0, 0];
    this.box.setAttribute("aria-valuemin", ends[0]);
    this.box.setAttribute("aria-valuemax", ends[1]);
    this.box.setAttribute("aria-valuenow", row ? step : ends[1]);
    this.box.setAttribute("aria-valuetext", spans.map((span) => span.textContent).join(" ") || "no values yet");
    this.onStep?.(row ? step : null);
  }

  pressed(event) {
    if (!this.graph) return;
    const [from, to] = this.graph.xAxisRange();
    const steps = this.data.map(([x]) => x).filter((x) => x >= from && x <= to);
    if (event.key in kMoves && steps.length > 0) {
      const [points, share] = kMoves[event.key];
      const at = this.step === null ? steps.length - 1 : Math.max(0, steps.findLastIndex((x) => x <= this.step));
      const next = at + points + Math.round(share * steps.length);
      this.anchor = event.shiftKey ? this.anchor ?? steps[at] : null;
      this.pointed = null;
      this.select(steps[Math.max(0, Math.min(steps.length - 1, next))]);
    } else if (event.key === "Enter" && this.anchor !== null && this.anchor !== this.step) {
      const part = [this.anchor, this.step].sort((a, b) => a - b);
      this.anchor = null;
      this.onZoom(...part);
    } else if (event.key === "Escape") {
      this.leave();
      if (this.graph.isZoomed("y")) this.graph.resetZoom();
      this.onZoom(null, null);
    } else {
      return;
    }
    event.preventDefault();
  }

  /// Marks the step that the keyboard reads, and the part up to the anchor.
  select(step) {
    this.step = step;
    this.graph.setSelection(this.rowOf(step));
    this.read(step);
    this.markPart();
  }

  markPart() {
    const part = this.box.querySelector(".part") || this.box.appendChild(element("div", undefined, "part"));
    const { x: edge, w: width } = this.graph.getArea();
    const place = (step) => edge + width * Math.max(0, Math.min(1, this.graph.toPercentXCoord(step)));
    const [left, right] = [this.anchor ?? this.step, this.step].map(place).sort((a, b) => a - b);
    Object.assign(part.style, { left: `${left}px`, width: `${right - left}px` });
  }

  leave() {
    this.step = this.anchor = this.pointed = null;
    this.box.querySelector(".part")?.remove();
    if (this.graph) this.graph.clearSelection();
    this.read(null);
  }
}

/// Heat map of layer norms over steps, on a logarithmic scale.
function drawHeat(series, canvas, legend) {
  const prefix = "unit_grad_norm/";
  const names = [...series.columns.keys()].filter((name) => name.startsWith(prefix));
  const rows = names.map((name) => series.columns.get(name).mean);
  const values = rows.flat().filter((value) => value > 0);
  const scale = window.devicePixelRatio || 1;
  byId("heat-card").hidden = values.length === 0;
  if (values.length === 0) return;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  let least = Infinity, most = 0;
  for (const value of values) { least = Math.min(least, value); most = Math.max(most, value); }
  const span = Math.log(most / least) || 1;
  const bins = Math.max(...rows.map((row) => row.length));
  const paint = canvas.getContext("2d");
  const height = canvas.height / rows.length;
  for (let x = 0; x < canvas.width; ++x) {
    const bin = Math.min(bins - 1, Math.floor((x / canvas.width) * bins));
    rows.forEach((row, y) => {
      const value = row[bin];
      if (!(value > 0)) return;
      const share = Math.log(value / least) / span;
      paint.fillStyle = `hsl(${265 - 215 * share} 70% ${22 + 43 * share}%)`;
      paint.fillRect(x, Math.floor(y * height), 1, Math.ceil(height));
    });
  }
  const layers = names.map((name) => name.slice(prefix.length));
  const [dark, light] = least < most ? axisLabels([least, most]) : [formatNumber(least), formatNumber(most)];
  setText(legend, `from ${dark} (dark) to ${light} (light); rows, from above: ` +
    (layers.length > 12 ? `${layers[0]} … ${layers[layers.length - 1]}` : layers.join(", ")));
}

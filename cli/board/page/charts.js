"use strict";
// Metrics of runs, and their charts.

/// Metrics of a run received from the server; requests only new ones.
class Series {
  constructor(run) {
    this.run = run;
    this.width = 0;
    this.first = 0;
    this.lastStep = -1;
    this.columns = new Map();
    this.detail = null;
  }

  async update() {
    const since = this.width ? `&since=${Math.max(this.lastStep, 0)}&width=${this.width}` : "";
    const answer = await fetch(`/series.json?run=${encodeURIComponent(this.run)}${since}`);
    if (!answer.ok) throw new Error(await answer.text());
    const news = await answer.json();
    if (news.width !== this.width || news.last_step < this.lastStep || news.first < this.first) {
      this.columns = new Map();
      this.first = news.first;
    }
    this.width = news.width;
    this.lastStep = news.last_step;
    this.damagedLines = news.damaged_lines || 0;
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

  /// Only steps from .. to, at full resolution; null: the whole run.
  async zoom(from, to) {
    this.detail = null;
    if (from === null || this.width === 1) return;
    const range = `&from=${Math.max(0, Math.floor(from))}&to=${Math.ceil(to)}`;
    const answer = await fetch(`/series.json?run=${encodeURIComponent(this.run)}${range}`);
    if (answer.ok) this.detail = await answer.json();
  }

  /// Points [step, [min, mean, max]] of a quantity.
  points(name) {
    const shown = this.detail
      ? { first: this.detail.first, width: this.detail.width, lists: this.detail.columns[name] }
      : { first: this.first, width: this.width, lists: this.columns.get(name) };
    if (!shown.lists) return [];
    const { mean, min = mean, max = mean } = shown.lists;
    const points = [];
    for (let bin = 0; bin < mean.length; ++bin) {
      if (mean[bin] !== null) {
        points.push([shown.first + bin * shown.width, [min[bin], mean[bin], max[bin]]]);
      }
    }
    return points;
  }

  /// Value of one step; the last bin holds the mean of several.
  newest(name) {
    const column = this.columns.get(name);
    return column ? column.newest : null;
  }
}

/// Exponential moving average; the band of minimum and maximum is unchanged.
function smoothed(points, share) {
  if (share <= 0) return points;
  let mean = null;
  return points.map(([x, [low, middle, high]]) => {
    mean = mean === null ? middle : share * mean + (1 - share) * middle;
    return [x, [Math.min(low, mean), mean, Math.max(high, mean)]];
  });
}

const kColors = ["#3d6fdb", "#e07b00", "#1f9d55", "#c2410c", "#8b5cf6", "#0e9aa7", "#d6336c", "#6b7280"];

const kLabelLetter = 8;  // largest width of a digit, in pixels

/// Ticks of an axis for dygraphs, with distinguishable labels.
function axisTicks(from, to, pixels, options, chart, values) {
  const ticks = Dygraph.numericTicks(from, to, pixels, options, chart, values);
  const shown = ticks.filter((tick) => tick.label !== "" && tick.label !== undefined);
  const labels = axisLabels(shown.map((tick) => tick.v));
  shown.forEach((tick, at) => { tick.label = labels[at]; });
  return ticks;
}

/// Chart of several quantities of several runs.
class Chart {
  constructor(id, quantities, onZoom) {
    this.id = id;
    this.quantities = quantities;
    this.onZoom = onZoom;
    this.graph = null;
    this.labels = "";
    this.labelWidth = 8 * kLabelLetter;
  }

  draw(allSeries, options) {
    const curves = [];
    for (const series of allSeries) {
      for (const quantity of this.quantities) {
        const raw = series.points(quantity);
        if (raw.length === 0) continue;
        const smooth = quantity.startsWith("val_") ? 0 : options.smoothing;
        const label = [allSeries.length > 1 ? series.run : "", quantity].filter(Boolean).join(" ");
        curves.push({ label, points: smoothed(raw, smooth) });
      }
    }
    if (curves.length === 0) return;
    const rows = new Map();
    curves.forEach((curve, column) => {
      for (const [x, value] of curve.points) {
        if (options.logX && x <= 0) continue;
        if (!rows.has(x)) rows.set(x, new Array(curves.length).fill(null));
        rows.get(x)[column] = value;
      }
    });
    const data = [...rows.entries()].sort((a, b) => a[0] - b[0]).map(([x, values]) => [x, ...values]);
    if (data.length > 0) this.show(data, curves.map((curve) => curve.label), options);
  }

  show(data, labels, options) {
    const settings = {
      file: data, labels: ["step", ...labels], customBars: true, connectSeparatedPoints: true,
      logscale: options.logY, axes: {
        x: { logscale: options.logX, ticker: axisTicks }, y: { ticker: axisTicks, axisLabelWidth: this.labelWidth },
      }, strokeWidth: 1.6,
      drawPoints: data.length < 40, legend: "always",
      colors: kColors, valueFormatter: formatNumber,
      gridLineColor: options.gridColor, axisLineColor: options.gridColor, animatedZooms: false,
    };
    const key = JSON.stringify([labels, options.logX, options.logY, options.gridColor]);
    if (this.graph && key === this.labels) {
      this.graph.updateOptions({ file: data });
      this.fitLabels(data);
      return;
    }
    if (this.graph) this.graph.destroy();
    this.labels = key;
    const { file, ...rest } = settings;
    this.graph = new Dygraph(byId(this.id), file, {
      ...rest, zoomCallback: (from, to) => this.onZoom && this.onZoom(from, to),
    });
    this.fitLabels(data);
  }

  /// The vertical axis fits its longest label, and never becomes narrower.
  fitLabels(data) {
    const labels = [...byId(this.id).querySelectorAll(".dygraph-axis-label-y")];
    const longest = Math.max(0, ...labels.map((label) => label.textContent.length));
    if (longest * kLabelLetter <= this.labelWidth) return;
    this.labelWidth = longest * kLabelLetter;
    // Without new data dygraphs would keep the old axis width.
    this.graph.updateOptions({ file: data, axes: { y: { axisLabelWidth: this.labelWidth } } });
  }
}

/// Heat map of layer norms over steps, on a logarithmic scale.
function drawHeat(series, canvas, legend) {
  const prefix = "unit_grad_norm/";
  const names = [...series.columns.keys()].filter((name) => name.startsWith(prefix));
  const rows = names.map((name) => series.columns.get(name).mean);
  const values = rows.flat().filter((value) => value > 0);
  const scale = window.devicePixelRatio || 1;
  canvas.width = canvas.clientWidth * scale;
  canvas.height = canvas.clientHeight * scale;
  if (values.length === 0) return;
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

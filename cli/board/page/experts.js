"use strict";
// Loads of experts: a heat map of one step.

const kLoadEnd = 2;  // the scale ends at loads of 1/4 and 4, as powers of two
const kLoadColors = 33;
const kTop = 2;  // pixels above the map, for the frame of a cell
const kMostKeptSteps = 64;  // loads of steps that were looked at

/// Loads of a run's steps received from the server, one step at a time.
class LoadSource {
  constructor(onChange) {
    Object.assign(this, { onChange, run: "", reading: 0, steps: [], kept: new Map(), wanted: null, asking: false,
      again: false });
  }

  /// Loads of a step that the run logged; null: the newest. `renew`: asks for the list of steps in any case.
  /// `reading`: as Series has it; another one may be of another run of this name, whose loads are others.
  async want(run, step, renew = false, reading = this.reading) {
    if (run !== this.run) this.steps = [];
    if (run !== this.run || reading !== this.reading) Object.assign(this, { run, reading, kept: new Map() });
    this.wanted = step;
    if (step !== null && this.kept.has(step)) {
      this.onChange(step, this.kept.get(step));
      if (!renew) return undefined;
    }
    this.again = true;
    if (this.asking) return undefined;
    this.asking = true;
    try {
      while (this.again) {
        this.again = false;
        await this.ask();
      }
    } finally {
      this.asking = false;
    }
    return undefined;
  }

  async ask() {
    const { run, reading, wanted } = this;
    const step = wanted === null ? "" : `&step=${wanted}`;
    const answer = await request(`/experts.json?run=${encodeURIComponent(run)}${step}`).catch(() => null);
    if (!answer?.ok) return;
    const { steps, step: found, loads } = await answer.json();
    if (!loads || run !== this.run || reading !== this.reading) return;
    this.steps = steps;
    this.kept.delete(found);
    this.kept.set(found, loads);
    if (this.kept.size > kMostKeptSteps) this.kept.delete(this.kept.keys().next().value);
    if (wanted === this.wanted) this.onChange(found, loads);
  }

  /// Logged step at or before `step`, or else the first.
  atOrBefore(step) {
    return this.steps.findLast((one) => one <= step) ?? this.steps[0] ?? null;
  }
}

/// The panel: a slider chooses the step, the chart's cells are read by pointer or arrow keys.
class ExpertMap {
  constructor() {
    Object.assign(this, { run: "", loads: [], text: "", step: null, chosen: null, read: new Map(), peeked: null,
      cell: null, colors: [] });
    this.source = new LoadSource((step, loads) => this.take(step, loads));
    this.canvas = byId("loads");
    this.slider = byId("loads-step");
    this.slider.addEventListener("input", () => this.choose(Number(this.slider.value)));
    for (const kind of ["pointerdown", "pointermove"]) {
      this.canvas.addEventListener(kind, (event) => this.point(this.cellAt(event)));
    }
    this.canvas.addEventListener("pointerleave", () => this.point(null));
    this.canvas.addEventListener("keydown", (event) => this.pressed(event));
    this.canvas.addEventListener("focus", () => this.reveal(this.cell || [0, 0]));
    this.canvas.addEventListener("blur", () => this.point(null));
  }

  /// Asks for the step that is shown; its place in the slider follows the newest step unless one is chosen.
  /// `known`: whether the run has loads. `reading`: as Series has it.
  update(run, known, reading) {
    byId("experts-card").hidden = !known;
    if (run !== this.run) {
      Object.assign(this, { run, loads: [], step: null, chosen: null, read: new Map(), peeked: null });
    }
    if (known) this.source.want(run, this.peeked ?? this.chosen, true, reading);
  }

  choose(at) {
    const { steps } = this.source;
    this.chosen = at >= steps.length - 1 ? null : steps[at];
    this.peeked = null;
    this.read.delete("");
    this.read.set("", null);  // comes after what charts read, until one of them reads another step
    this.source.want(this.run, this.chosen);
  }

  /// Shows the loads of the step that a chart beside the map reads, of several charts the one that changed last.
  /// Null: the chart reads none.
  peek(chart, step) {
    if (this.read.get(chart) !== step) this.read.delete(chart);
    if (step !== null) this.read.set(chart, step);
    this.follow();
  }

  /// Asks for the loads of the step that was read last, or else of the chosen one.
  follow() {
    const last = [...this.read.values()].pop() ?? null;
    const wanted = last === null ? null : this.source.atOrBefore(last);
    if (wanted === this.peeked || !this.run || byId("experts-card").hidden) return;
    this.peeked = wanted;
    this.source.want(this.run, this.peeked ?? this.chosen);
  }

  take(step, loads) {
    Object.assign(this, { step, loads, text: summaryOf(loads) });
    const { steps } = this.source;
    this.slider.max = Math.max(0, steps.length - 1);
    this.slider.disabled = steps.length < 2;
    this.slider.value = steps.indexOf(step);
    this.slider.setAttribute("aria-valuetext", `step ${step}`);
    setText("loads-at", `step ${step}${this.chosen === null && this.peeked === null ? ", the newest" : ""}`);
    this.draw();
    this.follow();  // the list of steps may have grown
  }

  /// Sizes in pixels: cells that can be seen and hit; wider maps scroll.
  measure() {
    const columns = Math.max(1, ...this.loads.map((layer) => layer.length));
    const rows = Math.max(1, this.loads.length);
    const left = 8 * String(rows - 1).length + 8;
    const room = byId("loads-box").clientWidth - left - 8;
    const width = Math.max(7, Math.min(36, Math.floor(room / columns)));
    const height = Math.max(7, Math.min(24, Math.floor(480 / rows)));
    Object.assign(this, { columns, rows, left, width, height });
  }

  draw() {
    if (this.loads.length === 0 || byId("experts-card").hidden) return;
    this.measure();
    this.colors = loadColors();
    const { canvas, left, width, height, columns, rows } = this;
    const scale = window.devicePixelRatio || 1;
    const [wide, high] = [left + columns * width + 2, kTop + rows * height + 18];
    Object.assign(canvas, { width: Math.round(wide * scale), height: Math.round(high * scale) });
    Object.assign(canvas.style, { width: `${wide}px`, height: `${high}px` });
    const paint = canvas.getContext("2d");
    paint.scale(scale, scale);
    paint.translate(0, kTop);
    this.drawCells(paint);
    this.drawLabels(paint);
    this.drawCursor(paint);
    setText("loads-summary", this.text);
    this.say();
  }

  drawCells(paint) {
    const { left, width, height } = this;
    const cells = new Map();  // of each colour, so that it is set once
    const crosses = new Path2D();
    this.loads.forEach((layer, row) => layer.forEach((load, column) => {
      const [x, y] = [left + column * width, row * height];
      if (load === 0) {
        const [middleX, middleY, arm] = [x + (width - 1) / 2, y + (height - 1) / 2, Math.min(width, height) / 2 - 1.5];
        for (const slope of [1, -1]) {
          crosses.moveTo(middleX - arm, middleY - slope * arm);
          crosses.lineTo(middleX + arm, middleY + slope * arm);
        }
        return;
      }
      const color = colorOfLoad(load);
      if (!cells.has(color)) cells.set(color, new Path2D());
      cells.get(color).rect(x, y, width - 1, height - 1);
    }));
    for (const [color, path] of cells) {
      paint.fillStyle = this.colors[color];
      paint.fill(path);
    }
    paint.strokeStyle = cssColor("--text");
    paint.lineWidth = 1.2;
    paint.stroke(crosses);
  }

  /// Numbers of layers and experts, as many as there is room for.
  drawLabels(paint) {
    const { left, width, height, columns, rows } = this;
    paint.fillStyle = cssColor("--muted");
    paint.font = "11px system-ui, sans-serif";
    paint.textBaseline = "middle";
    paint.textAlign = "right";
    const everyRow = labelEvery(12 / height);
    for (let row = 0; row < rows; row += everyRow) paint.fillText(row, left - 5, row * height + height / 2);
    paint.textAlign = "center";
    const everyColumn = labelEvery((8 * String(columns - 1).length + 4) / width);
    for (let column = 0; column < columns; column += everyColumn) {
      paint.fillText(column, left + column * width + width / 2, rows * height + 9);
    }
  }

  drawCursor(paint) {
    if (!this.cell) return;
    const [row, column] = this.cell;
    const [x, y] = [this.left + column * this.width, row * this.height];
    paint.lineWidth = 2;
    paint.strokeStyle = cssColor("--text");
    paint.strokeRect(x - 1, y - 1, this.width + 1, this.height + 1);
  }

  cellAt(event) {
    if (!this.width) return null;
    const box = this.canvas.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - kTop) / this.height);
    const column = Math.floor((event.clientX - box.left - this.left) / this.width);
    return this.loads[row]?.[column] === undefined ? null : [row, column];
  }

  point(cell) {
    this.cell = cell;
    this.draw();
  }

  /// Points at a cell by keyboard, and scrolls to it.
  reveal(cell) {
    this.point(cell);
    if (!this.width) return;
    const [x, box] = [this.left + cell[1] * this.width, byId("loads-scroll")];
    if (x < box.scrollLeft) box.scrollLeft = x;
    if (x + this.width > box.scrollLeft + box.clientWidth) box.scrollLeft = x + this.width - box.clientWidth;
    this.say();
  }

  pressed(event) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0],
      Home: [0, -Infinity], End: [0, Infinity], PageUp: [-Infinity, 0], PageDown: [Infinity, 0] };
    if (event.key === "Escape") {
      this.point(null);
    } else if (event.key in moves && this.loads.length > 0) {
      const [down, right] = moves[event.key];
      const within = (at, count) => Math.max(0, Math.min(count - 1, at));
      const [row, column] = this.cell || [0, 0];
      const next = within(row + down, this.rows);
      this.reveal([next, within(column + right, this.loads[next].length)]);
    } else {
      return;
    }
    event.preventDefault();
  }

  /// Words of a cell, beside it and for those who hear the page.
  say() {
    const tip = byId("loads-tip");
    const load = this.cell && this.loads[this.cell[0]]?.[this.cell[1]];
    tip.hidden = !this.cell || load === undefined;
    const [row, column] = this.cell || [0, 0];
    const text = `layer ${row}, expert ${column}: ` +
      `${load === 0 ? "dead, no row chose it" : `load ${formatNumber(load)}`}, step ${this.step}`;
    this.canvas.setAttribute("aria-valuemax", this.rows * this.columns - 1);
    this.canvas.setAttribute("aria-valuenow", row * this.columns + column);
    this.canvas.setAttribute("aria-valuetext", tip.hidden ? this.text : text);
    if (tip.hidden) return;
    setText(tip, text);
    const x = this.left + column * this.width;
    const y = 2 * row < this.rows ? (row + 1) * this.height + 6 : row * this.height - tip.offsetHeight;
    const box = byId("loads-scroll");
    tip.style.left = `${Math.max(0, Math.min(x - box.scrollLeft, box.clientWidth - tip.offsetWidth))}px`;
    tip.style.top = `${y}px`;
  }
}

/// Largest and smallest load, or the dead experts, in words.
function summaryOf(loads) {
  const all = loads.flatMap((layer, row) => layer.map((load, column) => [load, `layer ${row}, expert ${column}`]));
  if (all.length === 0) return "";
  const sizes = [...new Set(loads.map((layer) => layer.length))].join(" or ");
  const [mostLoad, most] = all.reduce((one, other) => (other[0] > one[0] ? other : one));
  const [leastLoad, least] = all.reduce((one, other) => (other[0] < one[0] ? other : one));
  const dead = all.filter(([load]) => load === 0).map(([, name]) => name);
  const named = dead.slice(0, 6).join("; ") + (dead.length > 6 ? `; and ${dead.length - 6} more` : "");
  return `${loads.length} ${loads.length === 1 ? "layer" : "layers"} of ${sizes} experts. ` +
    `Largest load ${formatNumber(mostLoad)} (${most})` +
    (dead.length > 0 ? `. ${dead.length} dead: ${named}.` : `, smallest ${formatNumber(leastLoad)} (${least}).`);
}

/// Distance of labels in cells that are `least` of them wide at least: 1, 2, 4, ...
function labelEvery(least) { return 2 ** Math.max(0, Math.ceil(Math.log2(least))); }

function cssColor(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

/// Place of a load above 0 on the diverging scale, the middle 1.
function colorOfLoad(load) {
  const share = (Math.max(-kLoadEnd, Math.min(kLoadEnd, Math.log2(load))) + kLoadEnd) / (2 * kLoadEnd);
  return Math.round(share * (kLoadColors - 1));
}

/// Colours of the scale, as the gradient of its legend mixes them.
function loadColors() {
  const parts = ["--load-low", "--load-even", "--load-high"].map((name) => cssColor(name))
    .map((color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16)));
  return [...Array(kLoadColors).keys()].map((at) => {
    const place = (2 * at) / (kLoadColors - 1);
    const from = Math.min(1, Math.floor(place));
    const mix = [0, 1, 2].map((part) => Math.round(parts[from][part] +
      (place - from) * (parts[from + 1][part] - parts[from][part])));
    return `rgb(${mix.join()})`;
  });
}

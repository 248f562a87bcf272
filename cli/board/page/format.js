"use strict";
// Numbers and times as people read them, and elements without HTML in strings.

function element(kind, text, className) {
  const made = document.createElement(kind);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function byId(id) { return document.getElementById(id); }

function setText(target, text) {
  const node = typeof target === "string" ? byId(target) : target;
  if (node.textContent !== text) node.textContent = text;
}

function setShown(id, text) {
  byId(id).hidden = !text;
  setText(id, text || "");
}

function formatNumber(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(3);
  return String(Number(value.toPrecision(size >= 1000 ? 7 : 5)));
}

/// Of the vertical axis of a chart: as many digits as tell its marks apart, as there is little room.
function formatAxis(value, _granularity, _options, chart) {
  const size = Math.abs(value);
  const [low, high] = chart.yAxisRange() || [0, size];
  const apart = high > low && size > 0 ? Math.ceil(Math.log10(size / (high - low))) + 2 : 0;
  const digits = Math.min(9, Math.max(4, apart));
  if (size !== 0 && size < 1e-3) return value.toExponential(Math.max(1, apart - 1));
  return size >= 1e4 && digits === 4 ? formatCount(value) : String(Number(value.toPrecision(digits)));
}

function formatCount(value) {
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return (value / size).toPrecision(3) + " " + unit;
  }
  return value.toPrecision(3);
}

function formatBytes(bytes) {
  for (const [unit, size] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]]) {
    if (bytes >= size) return (bytes / size).toFixed(bytes >= 100 * size ? 0 : 1) + " " + unit;
  }
  return bytes + " B";
}

function formatSeconds(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  const whole = Math.round(seconds);
  const days = Math.floor(whole / 86400), hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return seconds < 10 ? `${seconds.toFixed(1)} s` : `${whole} s`;
}

function formatTime(unixMs) { return new Date(unixMs).toLocaleString(); }

"use strict";
// Texts that the run samples while it trains, of one step.

/// Shows the newest step's texts until the slider chooses another.
class Samples {
  constructor() {
    this.steps = [];  // Of events with a text: [step, prompts with texts by their index], ascending.
    this.chosen = null;
    byId("samples-step").addEventListener("input", () => {
      const at = Number(byId("samples-step").value);
      this.chosen = at === this.steps.length - 1 ? null : this.steps[at][0];
      this.draw();
    });
  }

  /// Of a step that was done again the newest texts count.
  take(events) {
    const steps = new Map();
    for (const event of events) {
      if (event.event !== "sampled") continue;
      if (!steps.has(event.step)) steps.set(event.step, new Map());
      steps.get(event.step).set(event.index, [event.prompt, event.text]);
    }
    this.steps = [...steps].sort(([one], [other]) => one - other);
    this.draw();
  }

  draw() {
    byId("samples-card").hidden = this.steps.length === 0;
    if (this.steps.length === 0) return;
    const found = this.steps.findIndex(([step]) => step === this.chosen);
    const at = found < 0 ? this.steps.length - 1 : found;
    const [step, texts] = this.steps[at];
    const slider = byId("samples-step");
    slider.max = this.steps.length - 1;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `step ${step}`);
    setText("samples-at", `step ${step}${at === this.steps.length - 1 ? ", the newest" : ""}`);
    const shown = JSON.stringify([step, ...texts.values()]);
    if (shown === this.shown) return;
    this.shown = shown;
    byId("samples").replaceChildren(...[...texts.values()].flatMap(([prompt, text]) =>
      [element("dt", prompt || "(the beginning of a text)"), element("dd", text)]));
  }
}

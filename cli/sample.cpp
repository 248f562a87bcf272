#include "cli/sample.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "base/log.hpp"
#include "base/signal_watcher.hpp"
#include "cli/byte_text.hpp"
#include "cli/trained_model.hpp"
#include "engine/generate/text_generator.hpp"
#include "engine/rank/run_device.hpp"

namespace train::cli {

void show_sample(const PreparedRun& run) {
  const configs::RunSection& section = run.config().run;
  const auto& facts = run.plan.dataset.facts();
  if (section.sample_tokens == 0 || facts.tokenizer.value_or("") != "bytes") {
    return;
  }
  const auto model = load_model(run.directory.root, std::nullopt);
  if (!model) {
    log_warning(fmt::format("no_sample {}", model.error().message));
    return;
  }
  const engine::ModelShape& shape = model->options.shape;
  const auto stream =
      kernels::make_thread_stream("compute", resolve_threads(run.config().runtime.threads));
  engine::TextGenerator generator(engine::kernels_of("cpu"), shape, model->options.seq_len,
                                  model->weights());
  std::string text = section.sample_prompt;
  generator.generate(*stream,
                     {.prompt = encode_bytes(section.sample_prompt),
                      .tokens = section.sample_tokens,
                      .vocab = facts.vocab_size.value_or(shape.vocab_size),
                      .sampling = {.seed = section.seed}},
                     [&text](std::int32_t token) {
                       text += show_byte(token);
                       return !signal_pending();
                     });
  std::fputs(fmt::format("sample:\n{}\n", text).c_str(), stdout);
}

}  // namespace train::cli

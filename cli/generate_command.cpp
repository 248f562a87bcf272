#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "actors/head/run_plan.hpp"
#include "base/exit_codes.hpp"
#include "base/signal_watcher.hpp"
#include "cli/byte_text.hpp"
#include "cli/report_error.hpp"
#include "cli/run_command.hpp"
#include "cli/trained_model.hpp"
#include "engine/generate/text_generator.hpp"
#include "engine/rank/run_device.hpp"
#include "storage/tokens/prepare.hpp"

namespace train::cli {
using namespace actors;
namespace {

/// Only the bytes tokenizer can turn a prompt into tokens. The data may be gone by now: then the
/// vocabulary tells.
Status require_bytes(const TrainedModel& model) {
  const auto facts = storage::read_dataset_facts(model.config.data.dir);
  const std::string tokenizer = facts ? facts->tokenizer.value_or("") : std::string();
  const bool fits = model.options.shape.vocab_size >= storage::bytes_vocab_size &&
                    model.options.shape.vocab_size < 2 * storage::bytes_vocab_size;
  if (tokenizer == "bytes" || (tokenizer.empty() && fits)) {
    return {};
  }
  return user_error(fmt::format(
      "generate: this model was trained on tokens of \"{}\", and only the bytes tokenizer is built "
      "in; train on data made by `actortrain data prepare --tokenizer bytes`",
      tokenizer.empty() ? "another tokenizer" : tokenizer));
}

}  // namespace

int generate_command(const GenerateOptions& options) {
  allow_signals();
  auto model = load_model(options.run_directory, options.step);
  Status status = model ? require_bytes(*model) : Status(model.error());
  if (!status.ok()) {
    return report_error(status.error());
  }
  const auto stream =
      kernels::make_thread_stream("compute", resolve_threads(model->config.runtime.threads));
  engine::TextGenerator generator(engine::kernels_of("cpu"), model->options.shape,
                                  model->options.seq_len, model->weights());
  std::fputs(options.prompt.c_str(), stdout);
  generator.generate(*stream,
                     {.prompt = encode_bytes(options.prompt),
                      .tokens = options.tokens,
                      .vocab = storage::bytes_vocab_size,
                      .sampling = {.temperature = options.temperature,
                                   .top_k = options.top_k,
                                   .top_p = options.top_p,
                                   .seed = options.seed}},
                     [](std::int32_t token) {
                       std::fputs(show_byte(token).c_str(), stdout);
                       std::fflush(stdout);
                       return std::ferror(stdout) == 0;
                     });
  std::fputs("\n", stdout);
  return kExitFinished;
}

}  // namespace train::cli

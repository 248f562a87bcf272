#include "cli/checkpoints/text_writer.hpp"

#include <algorithm>
#include <utility>

#include "engine/rank/plan/run_device.hpp"

namespace train::cli {
namespace {

std::vector<const float*> weights_of(const TrainedModel& model) {
  std::vector<const float*> weights;
  weights.reserve(model.units.size());
  for (const kernels::Buffer& unit : model.units) {
    weights.push_back(unit.as<float>());
  }
  return weights;
}

/// Length of the longest suffix of `text` that a stop text begins with.
std::size_t beginning_of(const std::string& stop, const std::string& text) {
  for (std::size_t length = std::min(stop.size() - 1, text.size()); length > 0; --length) {
    if (text.compare(text.size() - length, length, stop, 0, length) == 0) {
      return length;
    }
  }
  return 0;
}

}  // namespace

std::string StoppedText::shown_of(const std::string& added, bool at_end) {
  held_ += added;
  std::size_t end = held_.size();
  for (const std::string& stop : *stops_) {
    if (const std::size_t found = held_.find(stop); found < end) {
      end = found;
      stopped_ = true;
    }
  }
  if (stopped_) {
    std::string shown = held_.substr(0, end);
    held_.clear();
    return shown;
  }
  std::size_t kept = 0;
  for (const std::string& stop : *stops_) {
    kept = at_end ? 0 : std::max(kept, beginning_of(stop, held_));
  }
  std::string shown = held_.substr(0, held_.size() - kept);
  held_.erase(0, shown.size());
  return shown;
}

TextWriter::TextWriter(const TrainedModel& model, const run::TextCodec& codec, std::int64_t threads,
                       std::int64_t texts_at_once, engine::CacheForm cache)
    : codec_(codec),
      stream_(kernels::make_thread_stream("compute", run::resolve_threads(threads))),
      generator_(engine::kernels_of("cpu", model.options.precision.compute), model.options.model,
                 {.context = model.options.seq_len, .texts = texts_at_once, .cache = cache},
                 weights_of(model)) {}

void TextWriter::write(const TextRequest& request, const OnToken& written) {
  std::vector<StoppedText> texts;
  texts.reserve(request.prompts.size());
  for (const std::vector<std::int32_t>& prompt : request.prompts) {
    texts.emplace_back(codec_, prompt, request.stops);
  }
  std::vector<std::int64_t> made(request.prompts.size());
  const auto finish = [&](std::size_t text) {
    if (std::string left = texts[text].stopped() ? std::string() : texts[text].finish();
        !left.empty()) {
      written({.text = text, .shown = std::move(left)});
    }
    return false;
  };
  generator_.generate(*stream_,
                      {.prompts = request.prompts,
                       .tokens = request.tokens,
                       .vocab = codec_.vocab(),
                       .sampling = request.sampling},
                      [&](const engine::TextGenerator::NewToken& token) {
                        StoppedText& text = texts[token.text];
                        if (codec_.ends_text(token.token)) {
                          return finish(token.text);
                        }
                        const bool wanted = written({.text = token.text,
                                                     .token = token.token,
                                                     .log_probability = token.log_probability,
                                                     .shown = text.add(token.token)});
                        const bool last = ++made[token.text] == request.tokens;
                        if (wanted && (last || text.stopped())) {
                          return finish(token.text);
                        }
                        return wanted;
                      });
}

}  // namespace train::cli

#include "data/lanes/pass_lanes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/check.hpp"
#include "data/lanes/row_lanes.hpp"
#include "engine/objective/registry.hpp"
#include "storage/files/digest.hpp"

namespace train::data {
namespace {

/// Config keys of the passes' data, in the order of the passes.
struct StreamKey {
  const char* key;
  std::string configs::DataSection::*directory;
};
constexpr auto kStreams =
    std::to_array<StreamKey>({{"data.dir", &configs::DataSection::dir},
                              {"data.forget_dir", &configs::DataSection::forget_dir}});

}  // namespace

PassLanes::PassLanes(std::vector<std::shared_ptr<const LaneSource>> streams,
                     const configs::RunConfig& config, std::int64_t vocab_size)
    : streams_(std::move(streams)),
      objective_(engine::make_objective(config.objective)),
      vocab_size_(vocab_size) {
  facts_.bytes_per_token = streams_.front()->facts().bytes_per_token;
  facts_.reference.of_passes = true;
  for (const auto& stream : streams_) {
    if (stream != nullptr) {
      facts_.training_rows += stream->facts().training_rows;
      facts_.reference.lane_sequences =
          std::max(facts_.reference.lane_sequences, stream->facts().reference.lane_sequences);
    }
  }
  facts_.reference.live = objective_->reads_frozen() || objective_->reads_first_weights();
  facts_.reference.commands = facts_.reference.live ? 1 : 0;
}

Status PassLanes::read(const engine::LaneWork& work, const engine::LaneSlot& slot) const {
  if (work.pass.rows != engine::LaneRows::training) {
    return streams_.front()->read(work, slot);
  }
  const std::shared_ptr<const LaneSource>& stream = streams_.at(work.pass.number);
  if (stream == nullptr) {
    return {};
  }
  TRAIN_RETURN_IF_ERROR(stream->read(work, slot));
  if (work.pass.has_backward()) {
    if (const auto seed = objective_->passes(work.step)[work.pass.number].target_seed) {
      const auto lane_rows = static_cast<std::int64_t>(slot.targets.size());
      engine::draw_targets(*seed, work.step, work.lane * lane_rows, vocab_size_, slot.targets);
    }
  }
  return {};
}

std::optional<engine::RowCount> PassLanes::count_pass(std::int64_t step, std::size_t pass) const {
  return streams_.at(pass) == nullptr ? engine::RowCount{} : streams_[pass]->count(step);
}

std::optional<engine::RowCount> PassLanes::count(std::int64_t step) const {
  engine::RowCount sum;
  for (std::size_t pass = 0; pass < streams_.size(); ++pass) {
    sum += count_pass(step, pass).value();
  }
  return sum;
}

Result<std::string> PassLanes::fingerprint() const {
  std::string text;
  for (std::size_t pass = 0; pass < streams_.size(); ++pass) {
    if (streams_[pass] == nullptr) {
      text += "no " + engine::pass_name(pass) + "\n";
      continue;
    }
    auto fingerprint = TRAIN_TRY(streams_[pass]->fingerprint());
    text += engine::pass_name(pass) + " " + fingerprint + "\n";
  }
  return storage::digest_text(text);
}

Result<std::shared_ptr<const LaneSource>> open_passes(const configs::RunConfig& config,
                                                      std::int64_t vocab_size) {
  const std::vector<engine::Pass> passes = engine::make_objective(config.objective)->passes(0);
  TRAIN_CHECK(passes.size() <= kStreams.size(), "{} passes read {} directories", passes.size(),
              kStreams.size());
  std::vector<std::shared_ptr<const LaneSource>> streams;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    if (passes[pass].source != engine::GradientSource::rows) {
      streams.emplace_back();
      continue;
    }
    const StreamKey& stream = kStreams.at(pass);
    configs::RunConfig of_pass = config;
    of_pass.data.dir = config.data.*stream.directory;
    if (of_pass.data.dir.empty()) {
      return user_error(fmt::format(
          "{} is missing; name the packed rows that the {} of a step reads (objective.name = "
          "\"{}\"; the first reads data.dir)",
          stream.key, engine::pass_name(pass), config.objective.name));
    }
    of_pass.eval.interval_steps = pass == 0 ? config.eval.interval_steps : 0;
    const bool weighs = passes[pass].head.weighting != nullptr;
    auto rows =
        TRAIN_TRY(open_rows(of_pass, vocab_size, stream.key, /*means_of_documents=*/weighs));
    streams.push_back(std::move(rows));
  }
  return std::shared_ptr<const LaneSource>(
      std::make_shared<const PassLanes>(std::move(streams), config, vocab_size));
}

}  // namespace train::data

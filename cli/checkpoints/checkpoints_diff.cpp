#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.hpp"
#include "base/exit_codes.hpp"
#include "checkpoint/compare.hpp"
#include "checkpoint/manifest.hpp"
#include "cli/checkpoints/checkpoints_actions.hpp"

namespace train::cli::checkpoints {
namespace {

namespace fs = std::filesystem;

struct Side {
  fs::path directory;
  checkpoint::Manifest manifest;
};

Result<Side> open_side(const CheckpointsOptions::Side& side) {
  const auto run = open_run(side.run_directory);
  if (!run) {
    return run.error();
  }
  const auto directory = directory_of(*run, side.step);
  if (!directory) {
    return directory.error();
  }
  auto manifest = checkpoint::read_manifest(*directory);
  if (!manifest) {
    return manifest.error();
  }
  return Side{*directory, std::move(manifest).value()};
}

std::string difference_text(const checkpoint::CheckpointDifference& difference) {
  fmt::memory_buffer text;
  const auto out = std::back_inserter(text);
  for (const checkpoint::KeyDifference& key : difference.keys) {
    fmt::format_to(out, "config  {}: {} | {}\n", key.key, key.a.empty() ? "-" : key.a,
                   key.b.empty() ? "-" : key.b);
  }
  std::size_t widest = 0;
  for (const checkpoint::TensorDifference& tensor : difference.differing) {
    widest = std::max(widest, tensor.name.size());
  }
  for (const checkpoint::TensorDifference& tensor : difference.differing) {
    fmt::format_to(out, "tensor  {:<{}}  {}\n", tensor.name, widest,
                   tensor.defect.empty()
                       ? fmt::format("{} of {} elements differ, by {:.9g} at most",
                                     tensor.differing, tensor.elements, tensor.max_abs)
                       : tensor.defect);
  }
  if (difference.same_bits()) {
    fmt::format_to(out, "same bits: {} tensors\n", difference.tensors);
  } else {
    const auto unlike = std::count_if(difference.differing.begin(), difference.differing.end(),
                                      [](const auto& tensor) { return !tensor.defect.empty(); });
    fmt::format_to(out, "different: {} of {} tensors\n", difference.differing.size(),
                   difference.tensors + unlike);
  }
  return fmt::to_string(text);
}

}  // namespace

Result<int> diff(const CheckpointsOptions& options) {
  TRAIN_CHECK(options.sides.size() == 2);
  const auto a = open_side(options.sides[0]);
  if (!a) {
    return a.error();
  }
  const auto b = open_side(options.sides[1]);
  if (!b) {
    return b.error();
  }
  const auto difference =
      checkpoint::compare_checkpoints(a->directory, a->manifest, b->directory, b->manifest);
  if (!difference) {
    return difference.error();
  }
  print(difference_text(*difference));
  return difference->same_bits() ? kExitFinished : kExitFailure;
}

}  // namespace train::cli::checkpoints

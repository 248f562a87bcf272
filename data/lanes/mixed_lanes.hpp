#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "configs/run_config.hpp"
#include "configs/source_weights.hpp"
#include "data/lanes/directory_lanes.hpp"
#include "data/lanes/lane_source.hpp"
#include "data/lanes/mixture_order.hpp"
#include "engine/objective/objective.hpp"

namespace train::data {

/// Rows of several directories, mixed by data.sources. Evaluations read the first validation rows
/// of each source, in turn: as many of each, whatever the weights are.
class MixedLanes final : public LaneSource {
 public:
  struct Options {
    MixtureOrder::Options order = {};  ///< `rows` is the sources'.
    engine::LaneColumns columns = {};
    std::int64_t steps = 0;       ///< Total steps of the run.
    std::int64_t eval_lanes = 0;  ///< Lanes per evaluation; 0: no evaluation.
    bool reference = false;       ///< True if the objective has a reference.
    bool live = false;            ///< See ReferenceRows::live.
    std::vector<std::string> names = {};
  };

  MixedLanes(Options options, std::vector<std::shared_ptr<const DirectoryLanes>> sources);

  [[nodiscard]] const MixtureOrder& order() const { return order_; }

  [[nodiscard]] Status read(const engine::LaneWork& work,
                            const engine::LaneSlot& slot) const override;
  [[nodiscard]] std::optional<engine::RowCount> count(std::int64_t step) const override;
  [[nodiscard]] Result<std::string> fingerprint() const override;

 private:
  struct Place {
    std::size_t source = 0;
    SourceRow at;
  };
  /// Row of a lane; nullopt: padding only.
  [[nodiscard]] std::optional<Place> place(const engine::LaneWork& work, std::uint64_t row) const;
  [[nodiscard]] Place training_place(std::size_t source, std::uint64_t row) const;
  [[nodiscard]] std::optional<Place> validation_place(std::uint64_t number) const;
  /// Row `number` of those whose references are kept: each source's first ones, in its order.
  [[nodiscard]] std::optional<Place> reference_place(std::uint64_t number) const;
  void find_references();
  /// Mean over the rows of an evaluation; nullopt if a source does not know its own.
  [[nodiscard]] std::optional<double> mean_bytes_per_token() const;

  Options options_;
  MixtureOrder order_;
  std::vector<std::shared_ptr<const DirectoryLanes>> sources_;
  std::vector<std::uint64_t> referenced_;     // Training rows of each source with references.
  std::vector<std::int64_t> first_document_;  // By source, its training split before the other.
};

/// Opens the directories of data.sources. Errors (user): those of open_directory(), each at its
/// source; sources of other kinds or tokenizers; a source whose max_epochs end before the run.
[[nodiscard]] Result<std::shared_ptr<const LaneSource>> open_sources(
    const configs::RunConfig& config, std::int64_t vocab_size);

}  // namespace train::data

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/choices/choice_set.hpp"

namespace train::data {

/// Rows whose documents the reference model scores: the rows that training reads, in its order,
/// lane by lane as in its steps, then the rows that evaluations read.
struct ReferenceRows {
  std::int64_t training_rows = 0;
  std::int64_t validation_rows = 0;
  std::int64_t training_commands = 0;  ///< Commands of engine::kReference for training,
  std::int64_t commands = 0;           ///< and in total.
  std::int64_t documents = 0;          ///< Documents of both splits, read or not.
  bool live = false;                   ///< Scored in every step, by its own command.
  std::int64_t lane_sequences = 0;     ///< Maximum number of documents per lane.
  /// True for steps of several passes, which compare the model with the run's initial model
  /// (Compared): of the fields above only `live`, `lane_sequences` and `commands` (0 or 1) are set.
  bool of_passes = false;
  /// Training rows of each source of a mixture, whose first ones are covered; else empty.
  std::string of_sources = {};
};

/// One directory of a mixture (data.sources).
struct SourceFacts {
  std::string name = {};
  std::uint64_t rows = 0;  ///< Training rows that it has.
  /// Rows of it that the first `steps` steps read; thread-safe. Lives as long as its LaneSource.
  std::function<std::uint64_t(std::int64_t steps)> rows_read = {};
};

/// Facts about a run's data for plans and reports; fixed when the data is opened.
struct LaneFacts {
  std::uint64_t training_rows = 0;
  /// Bytes of text per validation token, for bits per byte; nullopt if the data has no such figure.
  std::optional<double> bytes_per_token = {};
  std::vector<SourceFacts> sources = {};  ///< Each directory of a mixture once; empty: no mixture.
  ReferenceRows reference = {};           ///< Rows with stored reference log-probabilities, if any.
  /// Questions for the lanes of LaneRows::questions; may be null. Owned by the LaneSource.
  const ChoiceSet* choices = nullptr;

  [[nodiscard]] std::vector<std::string> source_names() const {
    std::vector<std::string> names;
    names.reserve(sources.size());
    for (const SourceFacts& source : sources) {
      names.push_back(source.name);
    }
    return names;
  }
};

}  // namespace train::data

#include "cli/checkpoints/config_warnings.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/text/log.hpp"
#include "engine/model/architectures/architectures.hpp"

namespace train::cli {

Result<engine::ModelSpec> read_model_config(const std::string& text, const std::string& source,
                                            std::int64_t context) {
  auto model = TRAIN_TRY(engine::spec_from_config(text, source, context));
  warn_of_unread_keys(model, source);
  return model;
}

void warn_of_unread_keys(const engine::ModelSpec& model, const std::string& source) {
  if (!model.unread_keys.empty()) {
    log_warning(fmt::format(
        "config_not_read {}: {}; a {} computes nothing with them, here and in transformers, so the "
        "model is read without",
        source, fmt::join(model.unread_keys, ", "), model.architecture));
  }
}

void warn_of_dropout(const engine::ModelSpec& model, const std::string& source) {
  if (!model.dropout.empty()) {
    log_warning(fmt::format(
        "no_dropout {}: {}, and this program trains without dropout: every step uses all of the "
        "model, and overfits sooner on data that is seen often",
        source, fmt::join(model.dropout, ", ")));
  }
}

}  // namespace train::cli

#include "cli/report/scale_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "configs/scaling/scaling.hpp"
#include "configs/words/nearest.hpp"

namespace train::cli {
namespace {

struct ScaleRow {
  configs::ScaledModel model;
  double lr = 0.0;
  std::int64_t steps = 0;
  std::int64_t decay_time = 0;  ///< 0: the decay is constant.
  double weight_decay = 0.0;    ///< 0 for a run without a step.
};

Result<ScaleRow> row_of(const ScaleOptions& options, const configs::ScalingTable& table,
                        const configs::ScalingRule& rule, std::int64_t heads) {
  const auto model = TRAIN_TRY(configs::scaled_model(rule, heads));
  const auto lr = TRAIN_TRY(configs::scaled_lr(
      table, rule,
      {.optimizer = options.optimizer, .kappa = options.kappa, .sequences = options.batch},
      model.non_embedding));
  ScaleRow row{.model = model, .lr = lr};
  row.steps =
      configs::scaled_steps(options.params == "total" ? model.total : model.non_embedding,
                            options.tokens_per_parameter, options.batch * options.sequence_length);
  const std::int64_t decay_time = configs::scaled_decay_time(row.steps);
  row.decay_time = configs::has_decaying_weight_decay(options.optimizer) ? decay_time : 0;
  if (row.steps > 0) {
    row.weight_decay = configs::scaled_weight_decay(options.optimizer, options.omega, row.lr,
                                                    row.steps, static_cast<double>(decay_time));
  }
  return row;
}

std::string json_of(const ScaleOptions& options, const std::vector<ScaleRow>& rows) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ScaleRow& row : rows) {
    nlohmann::ordered_json entry = {{"arch", options.arch},
                                    {"optimizer", options.optimizer},
                                    {"heads", row.model.heads},
                                    {"layers", row.model.layers},
                                    {"head_dim", row.model.head_dim},
                                    {"embedding_dim", row.model.embedding_dim},
                                    {"mlp_hidden", row.model.mlp_hidden},
                                    {"non_embedding", row.model.non_embedding},
                                    {"total", row.model.total},
                                    {"lr", row.lr},
                                    {"steps", row.steps},
                                    {"weight_decay", row.weight_decay}};
    if (row.decay_time > 0) {
      entry["wd_ts"] = row.decay_time;
    }
    list.push_back(std::move(entry));
  }
  return list.dump(2) + "\n";
}

std::string text_of(const std::vector<ScaleRow>& rows) {
  std::string text =
      fmt::format("{:>5} {:>6} {:>8} {:>13} {:>10} {:>13} {:>13} {:>12} {:>9} {:>12} {:>8}\n",
                  "heads", "layers", "head_dim", "embedding_dim", "mlp_hidden", "non_embedding",
                  "total", "lr", "steps", "weight_decay", "wd_ts");
  for (const ScaleRow& row : rows) {
    const configs::ScaledModel& model = row.model;
    text += fmt::format(
        "{:>5} {:>6} {:>8} {:>13} {:>10} {:>13} {:>13} {:>12.6g} {:>9} {:>12.6g} {:>8}\n",
        model.heads, model.layers, model.head_dim, model.embedding_dim, model.mlp_hidden,
        model.non_embedding, model.total, row.lr, row.steps, row.weight_decay,
        row.decay_time > 0 ? fmt::format("{}", row.decay_time) : std::string("-"));
  }
  return text;
}

}  // namespace

Result<std::string> describe_scaling(const ScaleOptions& options) {
  const auto table = TRAIN_TRY(configs::load_scaling_table(options.table));
  const configs::ScalingRule* rule = table.find(options.arch);
  if (rule == nullptr) {
    std::vector<std::string> names;
    names.reserve(table.rules.size());
    for (const configs::ScalingRule& one : table.rules) {
      names.push_back(one.name);
    }
    return user_error(fmt::format("--arch \"{}\": there are \"{}\"{}", options.arch,
                                  fmt::join(names, "\", \""),
                                  configs::did_you_mean(options.arch, names)));
  }
  std::vector<ScaleRow> rows;
  rows.reserve(options.heads.size());
  for (const std::int64_t heads : options.heads) {
    const auto row = TRAIN_TRY(row_of(options, table, *rule, heads));
    rows.push_back(row);
  }
  return options.json ? json_of(options, rows) : text_of(rows);
}

}  // namespace train::cli

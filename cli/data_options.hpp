#pragma once

#include <cstdint>
#include <string>
#include <vector>

// Options of the commands that make and show data.
namespace train::cli {

/// actortrain data prepare
struct PrepareOptions {
  std::vector<std::string> inputs;  ///< At least one.
  std::string tokenizer = "bytes";
  std::string out;
  std::string layout;          ///< Layout of examples in the inputs; empty: detected by content.
  double val_fraction = 0.05;  ///< Above 0, below 1.
  double max_dropped = 0.05;   ///< Fraction of lines.
  std::string separator;       ///< Empty: each file is one document.
  std::uint64_t seed = 0;      ///< Selects the validation documents.
  bool force = false;          ///< Replace existing token files.
  std::int64_t threads = 0;    ///< Encoding threads; 0: all.
  // For rows only.
  std::int64_t row_length = 0;  ///< Tokens of a row; 0: token files, not rows.
  std::string kind;             ///< Empty: detected from the first line.
  std::string packing;          ///< Empty: chosen by the kind.
  std::string chat_template;    ///< Name or path; empty: the tokenizer's.
  std::string date;             ///< YYYY-MM-DD; empty: that of ChatSettings.
  std::string train_on = "all";
  std::string source_key;  ///< Empty: the files are the sources.
  std::string keywords;    ///< File of expressions; empty: all of a text is trained.
};

/// actortrain data show
struct ShowOptions {
  std::string dir;
  std::string split = "train";
  std::int64_t row = 0;
  std::int64_t document = -1;  ///< -1: show the row.
};

}  // namespace train::cli

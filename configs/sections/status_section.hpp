#pragma once

#include <string>

namespace train::configs {

// Meaning, unit and range of each member: its key in configs/fields/field_table.cpp.

/// [status]: watching the run; never changes a result.
struct StatusSection {
  std::string listen;
  std::string token_file;
};

}  // namespace train::configs

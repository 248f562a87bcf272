#pragma once

#include <string>

namespace train::configs {

/// [status]: who can watch the run; never changes a result.
struct StatusSection {
  std::string listen;      ///< "127.0.0.1:8080": the board of this run is there; empty: nowhere.
  std::string token_file;  ///< Whose first line a browser must know; empty: none.
};

}  // namespace train::configs

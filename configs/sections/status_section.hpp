#pragma once

#include <string>

namespace train::configs {

/// [status]: watching the run; never changes a result.
struct StatusSection {
  std::string listen;      ///< "127.0.0.1:8080": address of the run's board; empty: none.
  std::string token_file;  ///< File whose first line is the access token; empty: none.
};

}  // namespace train::configs

#pragma once

#include <string_view>

namespace train::cli {

/// The run file configs/quickstart.toml, as it was when the program was built.
[[nodiscard]] std::string_view quickstart_file();

}  // namespace train::cli

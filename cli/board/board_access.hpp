#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "configs/board_address.hpp"

namespace train::cli {

/// configs::parse_board_address(). Errors (user), which begin with `name`: of another form.
[[nodiscard]] Result<configs::BoardAddress> parse_board_address(std::string_view text,
                                                                std::string_view name);

/// The token in a file: its first line, of 16 or more letters, digits and "-_.~". Errors (user):
/// not readable; readable by others than its owner; too short, or of other characters. Blocks.
[[nodiscard]] Result<std::string> read_board_token(const std::filesystem::path& file);

/// What a request says of who it is from.
struct BoardCaller {
  std::string_view host = {};           ///< The header Host.
  std::string_view authorization = {};  ///< "Bearer ..."; empty: none.
  std::string_view cookie = {};
  std::string_view query_token = {};  ///< token= of the target; empty: none.
};

/// Who may look. Threading: immutable.
class BoardAccess {
 public:
  /// None: everybody who reaches it by a numeric address or as localhost, so that no page of
  /// another site can, under a name of its own that it lets point here.
  explicit BoardAccess(std::optional<std::string> token) : token_(std::move(token)) {}

  enum class Verdict : std::uint8_t {
    granted,
    granted_by_query,  ///< The token shall move from the address to a cookie.
    refused,
  };
  [[nodiscard]] Verdict judge(const BoardCaller& caller) const;
  /// Of the token as a cookie for browsers that call this board `host`. Browsers send a cookie to
  /// all ports of a machine, so its name has the port: boards side by side have one each. REQUIRES:
  /// a token.
  [[nodiscard]] std::string cookie(std::string_view host) const;

 private:
  [[nodiscard]] bool is_token(std::string_view text) const;

  std::optional<std::string> token_;
};

}  // namespace train::cli

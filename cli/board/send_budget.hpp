#pragma once

#include <cstddef>
#include <optional>
#include <utility>

namespace train::cli {

/// Memory budget for all unsent responses. Threading: not thread-safe. Ownership: outlives its
/// claims.
class SendBudget {
 public:
  explicit SendBudget(std::size_t limit_bytes) : limit_(limit_bytes) {}
  SendBudget(const SendBudget&) = delete;
  SendBudget& operator=(const SendBudget&) = delete;
  ~SendBudget() = default;

  /// Part of the budget, returned on destruction.
  class Claim {
   public:
    Claim(Claim&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(other.bytes_) {}
    Claim& operator=(Claim&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;
    ~Claim() {
      if (budget_ != nullptr) {
        budget_->used_ -= bytes_;
      }
    }

   private:
    friend class SendBudget;
    Claim(SendBudget* budget, std::size_t bytes) : budget_(budget), bytes_(bytes) {}
    SendBudget* budget_;
    std::size_t bytes_;
  };

  /// nullopt: not enough is left.
  [[nodiscard]] std::optional<Claim> claim(std::size_t bytes) {
    if (bytes > limit_ - used_) {
      return std::nullopt;
    }
    used_ += bytes;
    return Claim(this, bytes);
  }
  [[nodiscard]] std::size_t used_bytes() const { return used_; }

 private:
  std::size_t limit_;
  std::size_t used_ = 0;
};

}  // namespace train::cli

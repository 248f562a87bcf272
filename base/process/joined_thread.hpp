#pragma once

#include <thread>
#include <type_traits>
#include <utility>

#include "base/math/float_mode.hpp"

namespace train {

/// Thread that runs in the floating-point mode of base/math/float_mode.hpp from its first
/// instruction on, and is joined by its destructor, which first requests a stop if the body takes a
/// stop token. The only way to start threads (tests/tidy/host_math_test.cpp).
class JoinedThread : public std::jthread {
 public:
  JoinedThread() = default;

  template <class Body>
  requires(!std::is_same_v<std::remove_cvref_t<Body>, JoinedThread>) explicit JoinedThread(
      Body body)
      : std::jthread(in_mode(std::move(body))) {}

 private:
  template <class Body>
  static auto in_mode(Body body) {
    if constexpr (std::is_invocable_v<Body, std::stop_token>) {
      return [body = std::move(body)](std::stop_token stop) mutable {
        set_float_mode();
        body(std::move(stop));
      };
    } else {
      return [body = std::move(body)]() mutable {
        set_float_mode();
        body();
      };
    }
  }
};

}  // namespace train

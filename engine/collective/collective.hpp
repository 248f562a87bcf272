#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/result.hpp"

namespace train::engine {

/// Moves bytes between the ranks of one channel of one generation.
///
/// Calls return at once; `done` is called exactly once per call, on a thread of the transport (or
/// inside the call), with the failure if there was one. Memory is borrowed until then. Collectives
/// of one object run in call order. Threading: one owner calls; cancel() is safe from any thread.
class Collectives {
 public:
  using Done = std::function<void(Status)>;

  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int world_size() const = 0;

  /// Every rank receives what every rank sent: `receive` is world_size() equal parts by rank, each
  /// send.size() bytes; all ranks send equally much.
  virtual void all_gather(std::span<const std::byte> send, std::span<std::byte> receive,
                          Done done) = 0;

  /// send[r] goes to rank r, receive[r] comes from rank r. Sizes may differ from pair to pair.
  virtual void all_to_all(std::vector<std::span<const std::byte>> send,
                          std::vector<std::span<std::byte>> receive, Done done) = 0;

  /// Fails what is under way and everything asked for later, with `reason` in the message.
  virtual void cancel(const std::string& reason) = 0;

 protected:
  Collectives() = default;
};

/// The transport of a world of one rank: copies, and calls `done` before it returns.
[[nodiscard]] std::unique_ptr<Collectives> make_loopback();

}  // namespace train::engine

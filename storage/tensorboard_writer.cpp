#include "storage/tensorboard_writer.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/process/host_name.hpp"

namespace train::storage {
namespace {

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  constexpr std::uint32_t reversed_polynomial = 0x82f63b78U;
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < table.size(); ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? reversed_polynomial : 0U);
    }
    table[byte] = value;
  }
  return table;
}

/// The frame's checksum: rotated and offset, so that a checksum of data holding checksums is safe.
std::uint32_t masked_crc(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xa282ead8U;
}

template <class Integer>
void append_little_endian(std::string& out, Integer value) {
  for (std::size_t i = 0; i < sizeof(value); ++i) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(value >> (8 * i))));
  }
}

void append_varint(std::string& out, std::uint64_t value) {
  while (value >= 0x80U) {
    out.push_back(static_cast<char>(static_cast<unsigned char>(value | 0x80U)));
    value >>= 7U;
  }
  out.push_back(static_cast<char>(value));
}

/// Protocol buffer wire format: field number and wire type, then the value.
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& out, unsigned field, Wire wire) {
  append_varint(out, (field << 3U) | static_cast<unsigned>(wire));
}

void append_bytes(std::string& out, unsigned field, std::string_view bytes) {
  append_key(out, field, Wire::bytes);
  append_varint(out, bytes.size());
  out += bytes;
}

double wall_time_s() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

/// Fields of every event: wall_time (1) and step (2).
std::string event_at(std::int64_t step) {
  std::string event;
  append_key(event, 1, Wire::fixed64);
  append_little_endian(event, std::bit_cast<std::uint64_t>(wall_time_s()));
  append_key(event, 2, Wire::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

std::string version_event() {
  std::string event = event_at(0);
  append_bytes(event, 3, "brain.Event:2");
  return event;
}

/// session_log (7) with status (1) START: events of earlier files from `step` on are void.
std::string start_event(std::int64_t step) {
  std::string session;
  append_key(session, 1, Wire::varint);
  append_varint(session, 1);
  std::string event = event_at(step);
  append_bytes(event, 7, session);
  return event;
}

std::string scalar_event(std::string_view tag, std::int64_t step, float number) {
  std::string value;
  append_bytes(value, 1, tag);
  append_key(value, 2, Wire::fixed32);
  append_little_endian(value, std::bit_cast<std::uint32_t>(number));
  std::string summary;
  append_bytes(summary, 1, value);
  std::string event = event_at(step);
  append_bytes(event, 5, summary);
  return event;
}

/// A value with metadata (9) for the plugin of texts and a tensor (8) of one string.
std::string text_event(std::string_view tag, std::int64_t step, std::string_view text) {
  constexpr std::uint64_t kString = 7;     // DataType.DT_STRING
  constexpr std::uint64_t kOfTensors = 2;  // DataClass.DATA_CLASS_TENSOR
  std::string plugin;
  append_bytes(plugin, 1, "text");
  std::string metadata;
  append_bytes(metadata, 1, plugin);
  append_key(metadata, 4, Wire::varint);
  append_varint(metadata, kOfTensors);
  std::string dimension;
  append_key(dimension, 1, Wire::varint);
  append_varint(dimension, 1);
  std::string shape;
  append_bytes(shape, 2, dimension);
  std::string tensor;
  append_key(tensor, 1, Wire::varint);
  append_varint(tensor, kString);
  append_bytes(tensor, 2, shape);
  append_bytes(tensor, 8, text);
  std::string value;
  append_bytes(value, 1, tag);
  append_bytes(value, 8, tensor);
  append_bytes(value, 9, metadata);
  std::string summary;
  append_bytes(summary, 1, value);
  std::string event = event_at(step);
  append_bytes(event, 5, summary);
  return event;
}

/// Files are read in name order: a second one within the same second must sort after the first.
std::filesystem::path free_name(const std::filesystem::path& directory) {
  const std::string name =
      fmt::format("events.out.tfevents.{:010}.{}.{}", static_cast<std::int64_t>(wall_time_s()),
                  host_name("localhost"), ::getpid());
  std::filesystem::path path = directory / name;
  std::error_code code;
  for (int serial = 1; serial < 1000 && std::filesystem::exists(path, code); ++serial) {
    path = directory / fmt::format("{}.{:03}", name, serial);
  }
  return path;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr std::array<std::uint32_t, 256> table = make_crc_table();
  std::uint32_t crc = 0xffffffffU;
  for (const char byte : bytes) {
    crc = table[(crc ^ static_cast<unsigned char>(byte)) & 0xffU] ^ (crc >> 8U);
  }
  return ~crc;
}

TensorboardWriter::TensorboardWriter(const std::filesystem::path& directory)
    : file_(free_name(directory)) {}

Status TensorboardWriter::begin(std::int64_t first_step) {
  const auto failed = file_.open();
  if (!std::exchange(begun_, true)) {
    record(version_event());
  }
  record(start_event(first_step));
  return failed && failed->kind == ErrorKind::user ? Status(*failed) : Status();
}

void TensorboardWriter::scalar(std::string_view tag, std::int64_t step, float value) {
  record(scalar_event(tag, step, value));
}

void TensorboardWriter::text(std::string_view tag, std::int64_t step, std::string_view text) {
  record(text_event(tag, step, text));
}

void TensorboardWriter::record(std::string_view event) {
  std::string frame;
  append_little_endian(frame, static_cast<std::uint64_t>(event.size()));
  append_little_endian(frame, masked_crc(frame));
  frame += event;
  append_little_endian(frame, masked_crc(event));
  file_.append(frame);
}

}  // namespace train::storage

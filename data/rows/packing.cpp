#include "data/rows/packing.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.hpp"

namespace train::data {
namespace {

constexpr std::array<std::string_view, 5> kPackingNames = {"bfd", "bfd_split", "wrapped", "greedy",
                                                           "none"};

/// Documents as items, those longer than a row cut to row length.
std::vector<PackItem> items_of(std::span<const std::uint64_t> groups,
                               std::span<const std::uint32_t> lengths, std::uint32_t row_length) {
  std::vector<PackItem> items;
  items.reserve(groups.size());
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (std::uint32_t start = 0; start < lengths[i];) {
      const std::uint32_t length = std::min(row_length, lengths[i] - start);
      items.push_back({.group = groups[i], .start = start, .length = length});
      start += length;
    }
  }
  return items;
}

/// Longest first; each into the row with the least room that fits, the oldest on ties.
std::vector<PackedRow> best_fit(const std::vector<PackItem>& items, std::uint32_t row_length) {
  std::vector<std::uint32_t> order(items.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t left, std::uint32_t right) {
    return items[left].length > items[right].length;
  });
  std::vector<PackedRow> rows;
  std::set<std::pair<std::uint32_t, std::size_t>> room;  // Remaining room of a row, and its number.
  for (const std::uint32_t index : order) {
    const PackItem& item = items[index];
    const auto found = room.lower_bound({item.length, 0});
    std::size_t row = rows.size();
    std::uint32_t left = row_length;
    if (found == room.end()) {
      rows.emplace_back();
    } else {
      std::tie(left, row) = *found;
      room.erase(found);
    }
    rows[row].push_back(item);
    if (left > item.length) {
      room.emplace(left - item.length, row);
    }
  }
  return rows;
}

std::vector<PackedRow> in_order(const std::vector<PackItem>& items, std::uint32_t row_length,
                                bool wrap) {
  std::vector<PackedRow> rows;
  std::uint32_t left = 0;
  for (PackItem item : items) {
    while (item.length > 0) {
      if (left == 0 || (!wrap && item.length > left)) {
        rows.emplace_back();
        left = row_length;
      }
      PackItem piece = item;
      piece.length = std::min(item.length, left);
      rows.back().push_back(piece);
      left -= piece.length;
      item.start += piece.length;
      item.length -= piece.length;
    }
  }
  return rows;
}

}  // namespace

Result<Packing> packing_of(std::string_view name) {
  const auto found = std::find(kPackingNames.begin(), kPackingNames.end(), name);
  if (found == kPackingNames.end()) {
    return user_error(
        fmt::format("unknown packing \"{}\"; use one of {}", name, fmt::join(kPackingNames, ", ")));
  }
  return static_cast<Packing>(found - kPackingNames.begin());
}

std::string_view packing_name(Packing packing) {
  return kPackingNames.at(static_cast<std::size_t>(packing));
}

bool cuts_documents(Packing packing) {
  return packing == Packing::bfd_split || packing == Packing::wrapped;
}

std::vector<PackedRow> pack_window(Packing packing, std::span<const std::uint64_t> groups,
                                   std::span<const std::uint32_t> lengths,
                                   std::uint32_t row_length) {
  TRAIN_CHECK(groups.size() == lengths.size() && row_length >= 1);
  const std::vector<PackItem> items = items_of(groups, lengths, row_length);
  TRAIN_CHECK(cuts_documents(packing) || items.size() == groups.size(),
              "a document is longer than its row, or empty");
  switch (packing) {
    case Packing::bfd:
    case Packing::bfd_split:
      return best_fit(items, row_length);
    case Packing::wrapped:
    case Packing::greedy:
      return in_order(items, row_length, packing == Packing::wrapped);
    case Packing::none:
      break;
  }
  std::vector<PackedRow> rows;
  rows.reserve(items.size());
  for (const PackItem& item : items) {
    rows.push_back({item});
  }
  return rows;
}

}  // namespace train::data

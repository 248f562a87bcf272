#include "data/tokenizer/text/character_clusters.hpp"

#include <algorithm>
#include <span>

#include "data/tokenizer/text/unicode_tables.hpp"
#include "storage/text/utf8.hpp"

namespace train::data {
namespace {

constexpr std::size_t kMappedLimitBytes = 6;

struct PointRange {
  char32_t first;
  char32_t last;
};

bool in_ranges(std::span<const PointRange> ranges, char32_t point) {
  return std::ranges::any_of(ranges, [point](const PointRange& range) {
    return range.first <= point && point <= range.last;
  });
}

/// Spacing marks, after which a new cluster begins.
constexpr PointRange kStandingMarks[] = {
    {0x102b, 0x102c}, {0x1038, 0x1038}, {0x1062, 0x1064},  {0x1067, 0x106d}, {0x1083, 0x1083},
    {0x1087, 0x108c}, {0x108f, 0x108f}, {0x109a, 0x109c},  {0x1a61, 0x1a61}, {0x1a63, 0x1a64},
    {0xaa7b, 0xaa7b}, {0xaa7d, 0xaa7d}, {0x11720, 0x11721}};

/// Characters that join the previous one without being marks, or marks only in Unicode 17.0.
constexpr PointRange kOtherJoining[] = {{0xe33, 0xe33},     {0xeb3, 0xeb3},     {0x1acf, 0x1add},
                                        {0x1ae0, 0x1aeb},   {0x200c, 0x200d},   {0xff9e, 0xff9f},
                                        {0x10efa, 0x10efb}, {0x11b60, 0x11b67}, {0x1e6e3, 0x1e6e3},
                                        {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5},
                                        {0x1f3fb, 0x1f3ff}, {0xe0020, 0xe007f}};

/// Signs that belong to the following character.
constexpr PointRange kPrepended[] = {{0x600, 0x605},     {0x6dd, 0x6dd},     {0x70f, 0x70f},
                                     {0x890, 0x891},     {0x8e2, 0x8e2},     {0xd4e, 0xd4e},
                                     {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x111c2, 0x111c3},
                                     {0x113d1, 0x113d1}, {0x1193f, 0x1193f}, {0x11941, 0x11941},
                                     {0x11a84, 0x11a89}, {0x11d46, 0x11d46}, {0x11f02, 0x11f02}};

/// Characters that join on neither side.
constexpr PointRange kControls[] = {{0, 0x1f},        {0x7f, 0x9f},     {0xad, 0xad},
                                    {0x61c, 0x61c},   {0x180e, 0x180e}, {0x200b, 0x200b},
                                    {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2060, 0x206f},
                                    {0xfeff, 0xfeff}, {0xfff0, 0xfffb}};

bool joins(char32_t point) {
  const bool mark = in_classes(unicode_table()[point], kMarkClasses);
  return mark ? !in_ranges(kStandingMarks, point) : in_ranges(kOtherJoining, point);
}

/// Bytes of a text's first cluster.
std::size_t cluster_size(std::string_view text) {
  if (text.starts_with("\r\n")) {
    return 2;
  }
  storage::CodePoint point = storage::code_point_at(text.data());
  std::size_t size = point.length;
  bool open = in_ranges(kPrepended, point.value);
  if (in_ranges(kControls, point.value)) {
    return size;
  }
  for (; size < text.size(); size += point.length) {
    point = storage::code_point_at(text.data() + size);
    if (!joins(point.value) && (!open || in_ranges(kControls, point.value))) {
      break;
    }
    open = open && in_ranges(kPrepended, point.value);
  }
  return size;
}

}  // namespace

void map_clusters(const CharacterMap& map, std::string_view text, std::string& out,
                  storage::OriginTrace& trace) {
  out.clear();
  const auto put = [&](std::string_view content, std::size_t begin, std::size_t end) {
    out += content;
    trace.made(content.size(), begin, end);
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = at + cluster_size(text.substr(at));
    if (end - at < kMappedLimitBytes) {
      if (const auto whole = map.find_shortest(text.substr(at, end - at))) {
        put(whole->content, at, end);
        at = end;
        continue;
      }
    }
    while (at < end) {
      const std::size_t next = at + storage::code_point_at(text.data() + at).length;
      const std::string_view point = text.substr(at, next - at);
      const auto mapped = map.find_shortest(point);
      put(mapped ? mapped->content : point, at, next);
      at = next;
    }
  }
}

}  // namespace train::data

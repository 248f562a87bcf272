#include "checkpoint/models/ordered_sums.hpp"

#include <emmintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace train::checkpoint {
namespace {

/// Elements side by side in a vector register of any x86-64 processor.
constexpr std::size_t kLanes = 2;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

/// Calls `exchange` with places (low, high) whose numbers are put in order, one pair after another,
/// until `count` numbers are sorted: Batcher's odd-even merges. REQUIRES: a power of two.
template <class Exchange>
constexpr void for_each_exchange(std::size_t count, const Exchange& exchange) {
  for (std::size_t sorted = 1; sorted < count; sorted *= 2) {
    for (std::size_t apart = sorted; apart > 0; apart /= 2) {
      for (std::size_t first = apart % sorted; first + apart < count; first += 2 * apart) {
        for (std::size_t low = first; low < first + apart && low + apart < count; ++low) {
          if (low / (2 * sorted) == (low + apart) / (2 * sorted)) {
            exchange(low, low + apart);
          }
        }
      }
    }
  }
}

/// Puts two numbers in order, lane by lane. Of a NaN and a number neither is lost: both
/// instructions then give their second operand. Comparisons and choices would be four times as
/// many.
inline void exchange(Lanes& low, Lanes& high) {
  const Lanes a = low;
  const Lanes b = high;
  low = _mm_min_pd(b, a);
  high = _mm_max_pd(a, b);
}

struct Pair {
  std::size_t low = 0, high = 0;
};

constexpr std::size_t count_exchanges(std::size_t count) {
  std::size_t exchanges = 0;
  for_each_exchange(count, [&exchanges](std::size_t, std::size_t) { ++exchanges; });
  return exchanges;
}

template <std::size_t Count>
constexpr auto list_exchanges() {
  std::array<Pair, count_exchanges(Count)> pairs;
  Pair* next = pairs.data();
  for_each_exchange(Count, [&next](std::size_t low, std::size_t high) { *next++ = {low, high}; });
  return pairs;
}

using Columns = std::span<const WeightedValues>;

inline Lanes product(const WeightedValues& column, std::size_t begin) {
  return column.weight * Lanes{static_cast<double>(column.values[begin]),
                               static_cast<double>(column.values[begin + 1])};
}

/// Sums of a known number of columns: the compiler sees each exchange, and keeps the products in
/// registers. Places without a column hold zeros, which change no sum wherever they are sorted.
template <std::size_t Count>
struct FewSums {
  static constexpr std::size_t kPlaces = std::bit_ceil(Count);
  static constexpr auto kPairs = list_exchanges<kPlaces>();

  Lanes operator()(Columns columns, std::size_t begin) {
    return sum(columns, begin, std::make_index_sequence<Count>(),
               std::make_index_sequence<kPairs.size()>());
  }

 private:
  template <std::size_t... Column, std::size_t... Number>
  static Lanes sum(Columns columns, std::size_t begin, std::index_sequence<Column...> /*all*/,
                   std::index_sequence<Number...> /*all*/) {
    std::array<Lanes, kPlaces> products = {product(columns[Column], begin)...};
    (exchange(products[kPairs[Number].low], products[kPairs[Number].high]), ...);
    Lanes all = {};
    for (const Lanes& one : products) {
      all += one;
    }
    return all;
  }
};

/// Sums of any number of columns.
struct ManySums {
  std::vector<Lanes> products;  ///< A power of two of places.

  Lanes operator()(Columns columns, std::size_t begin) {
    std::fill(products.begin(), products.end(), Lanes{});
    for (std::size_t i = 0; i < columns.size(); ++i) {
      products[i] = product(columns[i], begin);
    }
    for_each_exchange(products.size(), [this](std::size_t low, std::size_t high) {
      exchange(products[low], products[high]);
    });
    Lanes sum = {};
    for (const Lanes& one : products) {
      sum += one;
    }
    return sum;
  }
};

template <class Sums>
void add_up(Columns columns, std::span<float> out, Sums sums) {
  std::size_t done = 0;
  for (; done + kLanes <= out.size(); done += kLanes) {
    const Lanes sum = sums(columns, done);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      out[done + lane] = static_cast<float>(sum[lane]);
    }
  }
  if (done < out.size()) {  // The last element has no neighbour.
    std::vector<std::array<float, kLanes>> padded(columns.size());
    std::vector<WeightedValues> last;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      padded[i] = {columns[i].values[done]};
      last.push_back({padded[i].data(), columns[i].weight});
    }
    out[done] = static_cast<float>(sums(last, 0)[0]);
  }
}

/// Calls add_up() with the sums of as many columns as there are, if that is one of Counts.
template <std::size_t... Counts>
bool add_few(Columns columns, std::span<float> out, std::index_sequence<Counts...> /*all*/) {
  return ((columns.size() == Counts + 1 && (add_up(columns, out, FewSums<Counts + 1>()), true)) ||
          ...);
}

}  // namespace

void ordered_sums(std::span<const WeightedValues> columns, std::span<float> out) {
  constexpr std::size_t few = 16;
  if (!add_few(columns, out, std::make_index_sequence<few>())) {
    add_up(columns, out, ManySums{std::vector<Lanes>(std::bit_ceil(columns.size()))});
  }
}

}  // namespace train::checkpoint

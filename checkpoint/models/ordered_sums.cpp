#include "checkpoint/models/ordered_sums.hpp"

#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

namespace train::checkpoint {
namespace {

using Columns = std::span<const WeightedValues>;

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

// Vectors of numbers are sorted, not single numbers. An exchange puts two vectors in order, lane by
// lane: of a NaN and a number neither is lost, as both instructions then give their second operand.
// Comparisons and choices would be four times as many.

/// Products: for weights that differ.
struct SortedProducts {
  static constexpr std::size_t kLanes = 2;
  using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

  static void load(const WeightedValues& column, std::size_t begin, Lanes& to) {
    to = column.weight * Lanes{static_cast<double>(column.values[begin]),
                               static_cast<double>(column.values[begin + 1])};
  }
  static void exchange(Lanes& low, Lanes& high) {
    const Lanes a = low;
    const Lanes b = high;
    low = _mm_min_pd(b, a);
    high = _mm_max_pd(a, b);
  }
  static void add_up(std::span<const Lanes> sorted, double /*weight*/, float* out) {
    Lanes sum = {};
    for (const Lanes& one : sorted) {
      sum += one;
    }
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      out[lane] = static_cast<float>(sum[lane]);
    }
  }
};

/// Values of a positive weight, whose products have their order: twice as many side by side.
struct SortedValues {
  static constexpr std::size_t kLanes = 4;
  using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

  static void load(const WeightedValues& column, std::size_t begin, Lanes& to) {
    to = _mm_loadu_ps(column.values + begin);
  }
  static void exchange(Lanes& low, Lanes& high) {
    const Lanes a = low;
    const Lanes b = high;
    low = _mm_min_ps(b, a);
    high = _mm_max_ps(a, b);
  }
  static void add_up(std::span<const Lanes> sorted, double weight, float* out) {
    SortedProducts::Lanes first = {};
    SortedProducts::Lanes second = {};
    for (const Lanes& one : sorted) {
      first += weight * static_cast<SortedProducts::Lanes>(_mm_cvtps_pd(one));
      second += weight * static_cast<SortedProducts::Lanes>(_mm_cvtps_pd(_mm_movehl_ps(one, one)));
    }
    _mm_storeu_ps(out, _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(second)));
  }
};

// GCC inlines what needs AVX2 only into what needs it, too: add_few_values_by_avx2() below.
#define TRAIN_BY_AVX2 [[gnu::target("avx2")]]

/// SortedValues, twice as many side by side.
struct WideValues {
  static constexpr std::size_t kLanes = 8;
  using Lanes = float __attribute__((vector_size(kLanes * sizeof(float))));

  TRAIN_BY_AVX2 static void load(const WeightedValues& column, std::size_t begin, Lanes& to) {
    to = _mm256_loadu_ps(column.values + begin);
  }
  TRAIN_BY_AVX2 static void exchange(Lanes& low, Lanes& high) {
    const Lanes a = low;
    const Lanes b = high;
    low = _mm256_min_ps(b, a);
    high = _mm256_max_ps(a, b);
  }
  TRAIN_BY_AVX2 static void add_up(std::span<const Lanes> sorted, double weight, float* out) {
    const __m256d weights = _mm256_set1_pd(weight);
    __m256d first = _mm256_setzero_pd();
    __m256d second = _mm256_setzero_pd();
    for (const Lanes& one : sorted) {
      first += weights * _mm256_cvtps_pd(_mm256_castps256_ps128(one));
      second += weights * _mm256_cvtps_pd(_mm256_extractf128_ps(one, 1));
    }
    _mm_storeu_ps(out, _mm256_cvtpd_ps(first));
    _mm_storeu_ps(out + kLanes / 2, _mm256_cvtpd_ps(second));
  }
};

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

/// Sums of a known number of columns: the compiler sees each exchange, and keeps what is sorted in
/// registers. Places without a column hold zeros, which change no sum wherever they are sorted.
template <class Sorted, std::size_t Count>
struct FewSums {
  static constexpr std::size_t kLanes = Sorted::kLanes;
  static constexpr std::size_t kPlaces = std::bit_ceil(Count);
  static constexpr auto kPairs = list_exchanges<kPlaces>();

  void operator()(Columns columns, std::size_t begin, float* out) {
    add_up(columns, begin, out, std::make_index_sequence<Count>(),
           std::make_index_sequence<kPairs.size()>());
  }

 private:
  template <std::size_t... Column, std::size_t... Number>
  static void add_up(Columns columns, std::size_t begin, float* out,
                     std::index_sequence<Column...> /*all*/,
                     std::index_sequence<Number...> /*all*/) {
    std::array<typename Sorted::Lanes, kPlaces> places = {};
    (Sorted::load(columns[Column], begin, places[Column]), ...);
    (Sorted::exchange(places[kPairs[Number].low], places[kPairs[Number].high]), ...);
    Sorted::add_up(places, columns.front().weight, out);
  }
};

/// Sums of any number of columns.
struct ManySums {
  static constexpr std::size_t kLanes = SortedProducts::kLanes;
  std::vector<SortedProducts::Lanes> places;  ///< A power of two.

  void operator()(Columns columns, std::size_t begin, float* out) {
    std::fill(places.begin(), places.end(), SortedProducts::Lanes{});
    for (std::size_t i = 0; i < columns.size(); ++i) {
      SortedProducts::load(columns[i], begin, places[i]);
    }
    for_each_exchange(places.size(), [this](std::size_t low, std::size_t high) {
      SortedProducts::exchange(places[low], places[high]);
    });
    SortedProducts::add_up(places, 1.0, out);
  }
};

template <class Sums>
void add_up(Columns columns, std::span<float> out, Sums sums) {
  constexpr std::size_t lanes = Sums::kLanes;
  std::size_t done = 0;
  for (; done + lanes <= out.size(); done += lanes) {
    sums(columns, done, out.data() + done);
  }
  if (done < out.size()) {  // The last elements are fewer than lanes.
    const std::size_t left = out.size() - done;
    std::vector<std::array<float, lanes>> padded(columns.size());
    std::vector<WeightedValues> last;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::copy_n(columns[i].values + done, left, padded[i].begin());
      last.push_back({padded[i].data(), columns[i].weight});
    }
    std::array<float, lanes> sum{};
    sums(last, 0, sum.data());
    std::copy_n(sum.begin(), left, out.begin() + static_cast<std::ptrdiff_t>(done));
  }
}

/// Calls add_up() with the sums of as many columns as there are, if that is one of Counts.
template <class Sorted, std::size_t... Counts>
bool add_few(Columns columns, std::span<float> out, std::index_sequence<Counts...> /*all*/) {
  return ((columns.size() == Counts + 1 &&
           (add_up(columns, out, FewSums<Sorted, Counts + 1>()), true)) ||
          ...);
}

constexpr std::make_index_sequence<16> kFew;

TRAIN_BY_AVX2 [[gnu::flatten]] bool add_few_values_by_avx2(Columns columns, std::span<float> out) {
  return add_few<WideValues>(columns, out, kFew);
}

bool add_few_values(Columns columns, std::span<float> out, SumVectors vectors) {
  return vectors == SumVectors::avx2 ? add_few_values_by_avx2(columns, out)
                                     : add_few<SortedValues>(columns, out, kFew);
}

/// True if the products have the order of their values.
bool share_positive_weight(Columns columns) {
  return std::ranges::all_of(columns, [&](const WeightedValues& column) {
    return column.weight > 0.0 && column.weight == columns.front().weight;
  });
}

}  // namespace

SumVectors widest_vectors() {
  return __builtin_cpu_supports("avx2") ? SumVectors::avx2 : SumVectors::sse2;
}

void ordered_sums(std::span<const WeightedValues> columns, std::span<float> out,
                  SumVectors vectors) {
  const bool added = share_positive_weight(columns) ? add_few_values(columns, out, vectors)
                                                    : add_few<SortedProducts>(columns, out, kFew);
  if (!added) {
    add_up(columns, out,
           ManySums{std::vector<SortedProducts::Lanes>(std::bit_ceil(columns.size()))});
  }
}

}  // namespace train::checkpoint

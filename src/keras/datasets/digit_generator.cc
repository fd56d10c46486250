#include "keras/datasets/digit_generator.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <source_location>
#include <span>
#include <string_view>
#include <utility>

#include "base/parallel.h"
#include "base/philox.h"
#include "lockstep/base/error.h"

// Only integers decide a pixel, and every random number is read in a statement of its own or in a
// braced list: the order of function arguments and of operands is the compiler's choice.
namespace lockstep::keras::datasets {
namespace {

// ---------------------------------------------------------------------------------------------
// Glyphs: how people write the digits, in several styles each, chosen by weight. A style is a list of
// knots "x,y" through which a smooth stroke passes; '^' after a knot makes it a corner, '|' lifts the
// pen. x runs right and y down, in hundredths of the digit's height.

struct Point {
  int x, y;
};

struct Knot {
  Point at{};
  bool corner = false;
  bool pen_down = false;  // the first of its stroke
};

struct Style {
  static constexpr int kMaxKnots = 16;
  uint32_t weight;
  std::array<Knot, kMaxKnots> knots{};
  int size = 0;

  // An ill-formed path does not compile.
  consteval Style(uint32_t style_weight, std::string_view path) : weight(style_weight) {
    bool down = true;
    for (size_t i = 0; i < path.size();) {
      const auto number = [&] {
        int value = 0;
        if (path[i] < '0' || path[i] > '9') throw "a number is missing";
        for (; i < path.size() && path[i] >= '0' && path[i] <= '9'; ++i) value = value * 10 + (path[i] - '0');
        return value;
      };
      if (path[i] == ' ') {
        ++i;
      } else if (path[i] == '|') {
        ++i, down = true;
      } else if (path[i] == '^') {
        ++i, knots[size - 1].corner = true;
      } else {
        Knot& knot = knots[size++];
        knot.at.x = number();
        if (path[i++] != ',') throw "a knot is x,y";
        knot.at.y = number();
        knot.pen_down = std::exchange(down, false);
      }
    }
  }
};

constexpr Style kZeros[] = {
    {4, "32,0 10,18 2,50 10,84 32,100 54,84 62,50 54,18 33,1"},
    {3, "44,6 28,2 12,24 8,56 18,90 34,97 50,74 54,40 46,12 36,6"},
    {3, "42,14 22,2 6,30 4,66 20,96 44,94 60,64 58,28 40,4 20,10"},
    {2, "20,10 4,42 10,80 30,98 52,82 60,44 46,10 24,4 14,12"},
};
constexpr Style kOnes[] = {
    {5, "32,0 31,33 30,66 30,100"},
    {3, "36,0 30,30 28,65 33,100"},
    {3, "17,27 34,0^ 33,50 32,100"},
    {2, "16,22 34,2^ 33,50 33,98 | 10,99 32,98 56,97"},
};
constexpr Style kTwos[] = {
    {4, "6,22 20,3 44,4 54,24 42,52 20,78 4,98^ 30,97 62,96"},
    {3, "8,24 24,4 46,8 52,30 38,60 16,90 4,92 8,78 24,82 42,96 62,90"},
    {2, "6,8 30,3 52,9^ 34,48 4,96^ 32,96 60,95"},
    {3, "10,30 16,8 38,0 56,16 52,42 28,74 4,98^ 24,92 44,98 64,90"},
};
constexpr Style kThrees[] = {
    {4, "8,12 28,1 50,10 48,32 24,47^ 52,58 55,84 30,100 4,88"},
    {2, "6,3 30,2 54,3^ 28,40^ 52,56 54,82 30,100 4,88"},
    {3, "10,14 30,1 50,14 42,36 24,47 21,42 34,45 55,62 50,90 26,100 4,90"},
    {3, "4,8 30,0 46,16 38,38 22,46^ 44,52 50,74 36,96 6,96"},
};
constexpr Style kFours[] = {
    {3, "14,0 8,28 4,54^ 30,56 62,52 | 46,6 44,50 40,100"},
    {3, "62,64 32,66 2,66^ 24,32 46,0^ 46,50 46,100"},
    {3, "8,2 5,28 16,48 36,46 54,30 | 56,2 52,50 46,100"},
    {2, "42,0 20,26 3,56^ 30,60 64,54 | 50,26 45,60 40,100"},
};
constexpr Style kFives[] = {
    {3, "16,4 12,24 8,44^ 30,36 54,52 54,80 32,99 4,90 | 16,4 36,4 60,2"},
    {3, "58,3 36,4 16,5^ 12,26 9,44^ 32,38 54,54 52,82 28,100 4,88"},
    {2, "56,4 28,4 12,18 18,40 40,50 54,70 42,94 18,100 2,86"},
    {2, "20,8 14,42^ 38,40 52,62 44,90 20,100 2,92 | 22,8 42,6 66,0"},
};
constexpr Style kSixes[] = {
    {3, "46,2 24,18 8,48 6,76 22,98 46,92 54,70 40,54 20,60 8,76"},
    {3, "36,0 18,30 6,62 10,90 32,100 50,84 46,62 26,58 10,72"},
    {2, "54,14 40,2 20,14 6,44 6,78 24,99 48,90 52,68 34,56 12,68"},
    {2, "30,0 16,34 8,68 14,94 34,98 46,82 34,66 16,72 10,84"},
};
constexpr Style kSevens[] = {
    {4, "4,6 32,4 60,3^ 42,36 28,70 20,100"},
    {3, "4,6 32,4 60,3^ 42,36 28,70 20,100 | 18,50 36,48 56,47"},
    {2, "6,22 8,4^ 34,6 60,4^ 40,40 30,72 26,100"},
    {3, "2,14 14,3 38,8 60,2^ 48,34 32,64 28,100"},
};
constexpr Style kEights[] = {
    {4, "50,12 30,1 12,14 18,36 40,52 54,76 34,99 10,86 14,62 38,44 52,24 46,8"},
    {2, "32,0 12,12 14,36 32,46 50,36 52,12 33,0 | 32,46 8,62 8,88 32,100 56,88 54,60 33,47"},
    {3, "32,48 12,28 26,2 48,10 46,34 30,50 10,72 20,97 46,95 52,70 34,50"},
    {2, "54,6 30,2 14,20 30,44 48,66 38,96 14,94 8,72 30,48 52,22 56,8"},
};
constexpr Style kNines[] = {
    {3, "52,14 32,2 10,16 8,40 28,52 48,38 53,12^ 52,50 46,100"},
    {3, "50,20 34,2 12,12 6,38 24,52 46,40 52,18 54,48 46,84 24,100 6,92"},
    {3, "44,6 20,4 6,28 18,48 40,40 50,8^ 40,55 30,100"},
    {2, "50,10 28,2 8,22 14,44 36,40 54,12 46,50 34,76 26,100"},
};

constexpr std::span<const Style> kGlyphs[10] = {kZeros, kOnes,  kTwos,   kThrees, kFours,
                                                kFives, kSixes, kSevens, kEights, kNines};
constexpr Point kGlyphCentre{31, 50};

// ---------------------------------------------------------------------------------------------
// Lengths on the page are in 1/256 of a pixel; ratios and angles (radians) in 1/65536.

constexpr int kPixel = 256;
constexpr int kPage = kDigitSide * kPixel;
constexpr int kOne = 65536;

constexpr int scaled(int value, int ratio) { return static_cast<int>(int64_t{value} * ratio >> 16); }
constexpr int percent(int value) { return value * kOne / 100; }

class Random : public PhiloxStream {
 public:
  using PhiloxStream::PhiloxStream;

  bool one_in(uint32_t n) { return below(n) == 0; }
  int uniform(int low, int high) {
    return low + static_cast<int>(below(static_cast<uint32_t>(high - low + 1)));
  }

  // Nearly normal with this standard deviation, and never beyond 3.45 of it: the sum of four bytes.
  int bell(int deviation) {
    const uint32_t word = next();
    const int sum = static_cast<int>((word & 255) + (word >> 8 & 255) + (word >> 16 & 255) + (word >> 24));
    return static_cast<int>(int64_t{sum - 510} * deviation / 148);
  }
};

// A knot of the glyph as it came out on the page.
struct PageKnot {
  Point at;
  int radius;
  bool corner;
};

// One point of the pen's path, joined to the one before it unless the pen came down here.
struct Dab {
  Point at;
  int radius;
  bool joined;
};

struct Trace {
  static constexpr int kSteps = 5;  // dabs from one knot to the next
  std::array<Dab, (Style::kMaxKnots + 1) * kSteps> dabs;
  int size = 0;

  void add(const Dab& dab) { dabs[size++] = dab; }
  Dab* begin() { return dabs.data(); }
  Dab* end() { return dabs.data() + size; }
};

// A cubic Hermite curve through the knots with Catmull-Rom tangents, shortened at corners by
// `corner_ratio`: 0 is a kink, 1 a round bend.
void trace_stroke(std::span<const PageKnot> knots, int corner_ratio, Trace& trace) {
  const auto tangent = [&](size_t k) -> Point {
    const Point before = knots[k == 0 ? 0 : k - 1].at, after = knots[std::min(k + 1, knots.size() - 1)].at;
    const int ratio = knots[k].corner ? corner_ratio : kOne;
    return {scaled((after.x - before.x) / 2, ratio), scaled((after.y - before.y) / 2, ratio)};
  };
  trace.add({knots[0].at, knots[0].radius, false});
  for (size_t k = 0; k + 1 < knots.size(); ++k) {
    const PageKnot &a = knots[k], &b = knots[k + 1];
    const Point ta = tangent(k), tb = tangent(k + 1);
    constexpr int n = Trace::kSteps, cube = n * n * n;
    for (int j = 1; j <= n; ++j) {
      // The Hermite basis at j / n, times n^3: exact in integers.
      const int from = 2 * j * j * j - 3 * n * j * j + cube, to = cube - from;
      const int leave = j * (n - j) * (n - j), arrive = -j * j * (n - j);
      const Point at{(from * a.at.x + to * b.at.x + leave * ta.x + arrive * tb.x) / cube,
                     (from * a.at.y + to * b.at.y + leave * ta.y + arrive * tb.y) / cube};
      trace.add({at, a.radius + (b.radius - a.radius) * j / n, true});
    }
  }
}

const Style& choose_style(Random& rng, std::span<const Style> styles) {
  uint32_t total = 0;
  for (const Style& style : styles) total += style.weight;
  uint32_t pick = rng.below(total);
  const Style* style = styles.data();
  while (pick >= style->weight) pick -= (style++)->weight;
  return *style;
}

// How this writer shapes and sets down a glyph: proportions, slant, size, rotation.
class Hand {
 public:
  explicit Hand(Random& rng) {
    waist_ = rng.bell(percent(10));
    taper_ = rng.bell(percent(14));
    const int height = kPixel * 19 + rng.bell(kPixel * 19 / 10);
    const int aspect = kOne + rng.bell(percent(13));
    const int slant = percent(10) + rng.bell(percent(22));
    const int angle = rng.bell(percent(15));
    const int square = scaled(angle, angle);
    const int sine = angle - scaled(angle, square) / 6;
    const int cosine = kOne - square / 2 + scaled(square, square) / 24;
    const int sy = height * kPixel / 100;  // page lengths per 1/256 of a glyph unit
    const int sx = scaled(sy, aspect);
    const int shear = -scaled(sx, slant);
    xx_ = scaled(sx, cosine), xy_ = scaled(shear, cosine) - scaled(sy, sine);
    yx_ = scaled(sx, sine), yy_ = scaled(shear, sine) + scaled(sy, cosine);
  }

  // `p` is relative to the glyph's centre, in 1/256 of a glyph unit; the result is on the page.
  Point set_down(Point p) const {
    const int height = p.y * kPixel / 50;  // -1 to 1 from top to bottom, in 1/65536
    const int x = p.x + scaled(scaled(p.x, height), taper_);
    const int y = p.y + scaled(50 * kPixel - scaled(50 * kPixel, scaled(height, height)), waist_);
    return {scaled(x, xx_) + scaled(y, xy_) + kPage / 2, scaled(x, yx_) + scaled(y, yy_) + kPage / 2};
  }

 private:
  int waist_;              // moves the middle up or down
  int taper_;              // widens the bottom against the top
  int xx_, xy_, yx_, yy_;  // slant, then size, then rotation
};

// The digit as one writer puts it once: style, unsteady knots, pressure.
void write_digit(Random& rng, uint32_t digit, Trace& trace) {
  const Style& style = choose_style(rng, kGlyphs[digit]);
  const Hand hand(rng);
  const int unsteadiness = rng.uniform(kPixel * 3 / 2, kPixel * 9 / 2);
  const int corner_ratio = rng.uniform(0, percent(80));
  const int pen_radius = std::max(kPixel * 65 / 100, kPixel * 115 / 100 + rng.bell(kPixel * 32 / 100));

  std::array<PageKnot, Style::kMaxKnots> knots;
  size_t size = 0;
  Point drift{0, 0};
  for (const Knot& knot : std::span(style.knots).first(style.size)) {
    if (knot.pen_down && size > 0) {
      trace_stroke({knots.data(), std::exchange(size, 0)}, corner_ratio, trace);
      drift = {rng.bell(kPixel * 5 / 2), rng.bell(kPixel * 5 / 2)};
    }
    const Point wobble{rng.bell(unsteadiness), rng.bell(unsteadiness)};
    const Point p{(knot.at.x - kGlyphCentre.x) * kPixel + drift.x + wobble.x,
                  (knot.at.y - kGlyphCentre.y) * kPixel + drift.y + wobble.y};
    const int pressure = kOne + rng.bell(percent(12));
    knots[size++] = {hand.set_down(p), scaled(pen_radius, pressure), knot.corner};
  }
  trace_stroke({knots.data(), size}, corner_ratio, trace);
}

// Bends the page smoothly: random shifts on a coarse lattice, blended between its points.
void warp(Random& rng, Trace& trace) {
  constexpr int kCells = 3, kCell = kPage / kCells + 1;
  const int strength = rng.uniform(0, kPixel * 15 / 10);
  std::array<std::array<Point, kCells + 1>, kCells + 1> shift;
  for (auto& row : shift)
    for (Point& p : row) p = {rng.bell(strength), rng.bell(strength)};
  for (Dab& dab : trace) {
    const int x = std::clamp(dab.at.x, 0, kPage - 1), y = std::clamp(dab.at.y, 0, kPage - 1);
    const auto ease = [](int offset) {  // 3 t^2 - 2 t^3: no kink where two cells meet
      const int t = offset * 256 / kCell;
      return t * t * (3 * 256 - 2 * t) / 256;
    };
    const int u = ease(x % kCell), v = ease(y % kCell);
    const auto& upper = shift[y / kCell];
    const auto& lower = shift[y / kCell + 1];
    const int column = x / kCell;
    const auto blend = [&](int Point::*axis) {
      const int top = upper[column].*axis + scaled(upper[column + 1].*axis - upper[column].*axis, u);
      const int bottom = lower[column].*axis + scaled(lower[column + 1].*axis - lower[column].*axis, u);
      return top + scaled(bottom - top, v);
    };
    dab.at = {dab.at.x + blend(&Point::x), dab.at.y + blend(&Point::y)};
  }
}

// Moves the digit near the page's centre, inside the page.
void place(Random& rng, Trace& trace) {
  Point low{kPage, kPage}, high{0, 0};
  for (const Dab& dab : trace) {
    low = {std::min(low.x, dab.at.x - dab.radius), std::min(low.y, dab.at.y - dab.radius)};
    high = {std::max(high.x, dab.at.x + dab.radius), std::max(high.y, dab.at.y + dab.radius)};
  }
  const auto move = [](int from, int to, int off_centre) {
    const int slack = std::max(0, (kPage - (to - from)) / 2 - kPixel / 2);
    return (kPage - from - to) / 2 + std::clamp(off_centre, -slack, slack);
  };
  const Point off{rng.bell(kPixel * 13 / 10), rng.bell(kPixel * 13 / 10)};
  const Point by{move(low.x, high.x, off.x), move(low.y, high.y, off.y)};
  for (Dab& dab : trace) dab.at = {dab.at.x + by.x, dab.at.y + by.y};
}

// A piece of a neighbouring character, reaching in from the page's edge.
void stray_mark(Random& rng, Trace& trace) {
  const int along = rng.uniform(0, kPage), further = along + rng.bell(kPixel * 2);
  const int inward = rng.uniform(kPixel * 3 / 2, kPixel * 9 / 2);
  const int radius = rng.uniform(kPixel * 6 / 10, kPixel * 12 / 10);
  const uint32_t edge = rng.below(4);
  const int outer = edge & 1 ? kPage : 0, inner = edge & 1 ? kPage - inward : inward;
  const bool upright = (edge & 2) != 0;
  trace.add({upright ? Point{along, outer} : Point{outer, along}, radius, false});
  trace.add({upright ? Point{further, inner} : Point{inner, further}, radius, true});
}

using Canvas = std::array<uint8_t, kDigitPixels>;

// Inks the capsule around a-b. Coverage falls linearly in the squared distance across an edge of
// 2 * kEdge, which antialiases without a square root.
void ink(const Dab& a, const Dab& b, Canvas& canvas) {
  constexpr int kEdge = kPixel * 55 / 100;
  const int radius = (a.radius + b.radius) / 2;
  const int outer = radius + kEdge, inner = std::max(0, radius - kEdge);
  const int full = outer * outer - inner * inner;
  const int dx = b.at.x - a.at.x, dy = b.at.y - a.at.y;
  const int64_t inverse = (int64_t{1} << 32) / std::max(1, dx * dx + dy * dy);
  const auto first = [&](int p, int q) { return std::max(0, (std::min(p, q) - outer) >> 8); };
  const auto last = [&](int p, int q) { return std::min(kDigitSide - 1, (std::max(p, q) + outer) >> 8); };
  for (int row = first(a.at.y, b.at.y), end = last(a.at.y, b.at.y); row <= end; ++row) {
    for (int column = first(a.at.x, b.at.x), stop = last(a.at.x, b.at.x); column <= stop; ++column) {
      const int x = column * kPixel + kPixel / 2 - a.at.x, y = row * kPixel + kPixel / 2 - a.at.y;
      const int64_t along = (int64_t{x * dx + y * dy} * inverse) >> 16;
      const int t = static_cast<int>(std::clamp<int64_t>(along, 0, kOne));
      const int ex = x - scaled(dx, t), ey = y - scaled(dy, t);
      const int depth = outer * outer - (ex * ex + ey * ey);
      if (depth <= 0) continue;
      uint8_t& pixel = canvas[row * kDigitSide + column];
      const int cover = depth >= full ? 255 : depth * 255 / full;
      pixel = std::max(pixel, static_cast<uint8_t>(cover));
    }
  }
}

// Scanner and paper: a slight blur, the ink's strength, its grain.
void develop(Random& rng, const Canvas& canvas, uint8_t* image) {
  const int side = rng.uniform(0, 50), middle = 256 - 2 * side;
  const int strength = rng.uniform(230, 330);
  const int grain = rng.uniform(0, 50);
  constexpr int kPaper = 14;  // lighter than this is background
  Canvas rows{};
  for (int i = 0; i < kDigitPixels; ++i) {
    const int column = i % kDigitSide;
    const int left = column > 0 ? canvas[i - 1] : 0, right = column < kDigitSide - 1 ? canvas[i + 1] : 0;
    rows[i] = static_cast<uint8_t>((middle * canvas[i] + side * (left + right)) >> 8);
  }
  for (int i = 0; i < kDigitPixels; ++i) {
    const int above = i >= kDigitSide ? rows[i - kDigitSide] : 0;
    const int below = i < kDigitPixels - kDigitSide ? rows[i + kDigitSide] : 0;
    const int value = ((middle * rows[i] + side * (above + below)) >> 8) - kPaper;
    if (value <= 0) {
      image[i] = 0;
      continue;
    }
    const int speck = static_cast<int>(rng.next() >> 24) * grain >> 8;
    image[i] = static_cast<uint8_t>(std::min(255, value * strength / 256) * (256 - speck) >> 8);
  }
}

void make_example(uint64_t seed, int64_t index, uint8_t* image, uint8_t* label) {
  constexpr uint64_t kDomain = 0x6469676974730000;  // "digits": apart from other uses of the same seed
  Random rng(seed ^ kDomain, static_cast<uint64_t>(index));
  const uint32_t digit = rng.below(10);
  Trace trace;
  write_digit(rng, digit, trace);
  warp(rng, trace);
  place(rng, trace);
  if (rng.one_in(4)) stray_mark(rng, trace);

  Canvas canvas{};
  for (int i = 1; i < trace.size; ++i)
    if (trace.dabs[i].joined) ink(trace.dabs[i - 1], trace.dabs[i], canvas);
  develop(rng, canvas, image);
  *label = static_cast<uint8_t>(digit);
}

}  // namespace

DigitImages generate_digits(uint64_t seed, int64_t first, int64_t count, int threads) {
  const auto where = std::source_location::current();
  require(first >= 0 && count >= 0, ErrorCode::invalid_argument, where,
          "generate_digits: first and count must not be negative, got first ", first, " and count ", count);
  require(count <= (std::numeric_limits<int64_t>::max() - first) / kDigitPixels, ErrorCode::invalid_argument,
          where, "generate_digits: ", count, " examples from ", first, " on are more than can be counted");
  require(threads >= 1, ErrorCode::invalid_argument, where,
          "generate_digits: threads must be at least 1, got ", threads);
  DigitImages out;
  out.images.resize(static_cast<size_t>(count) * kDigitPixels);
  out.labels.resize(static_cast<size_t>(count));
  parallel_for(count, 16, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      make_example(seed, first + i, &out.images[i * kDigitPixels], &out.labels[i]);
  });
  return out;
}

}  // namespace lockstep::keras::datasets

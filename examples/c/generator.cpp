// A generator in C++: the same samples as generator.c, with the handle in a unique_ptr and errors as exceptions.
//
//     c++ -std=c++17 generator.cpp $(pkg-config --cflags --libs ringreel) -o generator
#include <ringreel.h>

#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

void check(int code)
{
    if (code != RINGREEL_OK)
        throw std::runtime_error(ringreel_message());
}

struct Close {
    void operator()(ringreel_generator *generator) const { ringreel_close(generator, 0, nullptr); }
};
using Generator = std::unique_ptr<ringreel_generator, Close>;

Generator open(const char *config)
{
    ringreel_generator *generator = nullptr;
    check(ringreel_open(config, &generator));
    return Generator(generator);
}

} // namespace

int main(int argc, char **argv)
try {
    if (argc != 3) {
        std::cerr << "usage: generator CONFIG SAMPLES\n";
        return 2;
    }
    Generator generator = open(argv[1]);
    const std::vector<std::uint64_t> shape{8, 8, 8};
    std::vector<float> field(8 * 8 * 8);
    for (std::int64_t number = 0; number < std::atol(argv[2]); number++) {
        for (std::size_t i = 0; i < field.size(); i++)
            field[i] = static_cast<float>(number + 0.5 * i);
        check(ringreel_begin(generator.get()));
        check(ringreel_part(generator.get(), "number", "int64", 0, nullptr, &number));
        check(ringreel_part(generator.get(), "field", "float32", shape.size(), shape.data(), field.data()));
        check(ringreel_meta_text(generator.get(), "language", "C++"));
        check(ringreel_meta_int(generator.get(), "seed", number));
        check(ringreel_commit(generator.get()));
    }
    std::uint64_t finished = 0;
    check(ringreel_close(generator.release(), 1, &finished));
    std::cout << finished << '\n';
} catch (const std::exception &error) {
    std::cerr << error.what() << '\n';
    return 1;
}

// Source for the libraries that parse the headers of all tests (tests/CMakeLists.txt).

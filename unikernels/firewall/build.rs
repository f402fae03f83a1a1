fn main() {
    image::appliance_with_rules();
}
